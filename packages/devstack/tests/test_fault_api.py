"""A fault happens as often as it was asked for, to what it names, in the order of asking, and is gone in time."""

import pytest

from devstack.fault_api import MAX_FAULTS, CallRefused, Fault, Faults


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def _kinds(faults: Faults[Fault]) -> list[tuple[str, int | None]]:
    return [(fault.kind, fault.count) for fault in faults.pending()]


def test_each_is_counted_and_gone() -> None:
    faults = Faults[Fault]()
    faults.add(Fault(kind="slow", count=2))
    faults.add(Fault(kind="throttle"))
    met = [faults.take(lambda _: True) for _ in range(4)]
    assert [fault and fault.kind for fault in met] == ["slow", "slow", "throttle", None]
    assert faults.pending() == []


def test_only_what_matches_meets_it() -> None:
    faults = Faults[Fault]()
    faults.add(Fault(kind="slow"))
    faults.add(Fault(kind="throttle", count=2))
    assert faults.take(lambda fault: fault.kind == "throttle")
    assert faults.take(lambda fault: fault.kind == "unauthorized") is None
    assert _kinds(faults) == [("slow", 1), ("throttle", 1)]


def test_one_with_an_end_is_gone_then_met_or_not() -> None:
    clock = Clock()
    faults = Faults[Fault](clock)
    faults.add(Fault(kind="throttle", count=1000, for_seconds=2))
    faults.add(Fault(kind="slow"))
    assert faults.take(lambda _: True)
    clock.now += 2
    assert _kinds(faults) == [("slow", 1)]
    fault = faults.take(lambda _: True)
    assert fault is not None
    assert fault.kind == "slow"


def test_one_without_a_count_stays_until_its_end_or_until_it_is_cleared() -> None:
    faults = Faults[Fault]()
    faults.add(Fault(kind="slow", count=None))
    assert all(faults.take(lambda _: True) for _ in range(5))
    assert _kinds(faults) == [("slow", None)]
    faults.clear()
    assert faults.take(lambda _: True) is None


def test_there_is_an_end_to_them() -> None:
    faults = Faults[Fault]()
    for _ in range(MAX_FAULTS):
        faults.add(Fault(kind="slow"))
    with pytest.raises(CallRefused, match="100 faults already"):
        faults.add(Fault(kind="slow"))
