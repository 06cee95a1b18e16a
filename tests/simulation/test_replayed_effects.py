"""A step about an effect that the model of effects allows passes; each that breaks one of its rules is found."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.simulation.replayed.commits import Commit, Document
from tests.simulation.replayed.effects import EffectsReplayed, Ran

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
KIND = "Rung"


class Told:
    """The steps of a run about one thing with three events; the second one has no effect."""

    def __init__(self) -> None:
        self.now, self.item = NOON, None
        self.steps: list[Commit | Ran] = []
        for place, action in ((1, KIND), (2, "Made"), (3, KIND)):
            data = {"id": f"id-{place}", "action": action, "sequence": place}
            event = {"type": "domainEvent", "aggregateType": "thing", "partitionKey": "1", "data": data}
            self.steps.append(Commit(NOON, ((None, event),)))

    item: Document | None

    def writes(self, last: int, *, by: str = "a", running: int = 0, first: int = 1, **changes: Any) -> "Told":
        self.now += timedelta(seconds=1)
        named = f"id-{last}" if last else ""
        started = {"sequence": running, "event_id": f"id-{running}", "by": "call", "at": self.now.isoformat()}
        item = {
            "type": "effects", "aggregateType": "thing", "aggregateId": "1", "last": last, "first": first,
            "at": self.now.isoformat(), "lastEventId": named, "lastCreatedAt": None, "open": [],
            "running": started if running else None, "ttl": -1 if running else 1000,
        } | changes  # fmt: skip
        self.steps.append(Commit(self.now, ((self.item, item),), by))
        self.item = item
        return self

    def runs(self, place: int, *, by: str = "a", how: str = "done") -> "Told":
        self.steps += [Ran("begins", f"id-{place}", by), Ran(how, f"id-{place}", by)]
        return self

    def begins(self, place: int, *, by: str = "a") -> "Told":
        self.steps.append(Ran("begins", f"id-{place}", by))
        return self

    def later(self, seconds: float) -> "Told":
        self.now += timedelta(seconds=seconds)
        return self

    def found(self, *, repeatable: bool = True) -> list[str]:
        return [*map(str, EffectsReplayed(frozenset({KIND}), repeatable=repeatable).not_allowed(self.steps))]


def started() -> Told:
    return Told().writes(0, running=1)


def first_done() -> Told:
    return started().runs(1).writes(1)


UNSURE: dict[str, Any] = {
    "open": [{"sequence": 1, "event_id": "id-1", "why": "may have been handled", "at": NOON.isoformat()}]
}
MISSING: dict[str, Any] = {
    "open": [{"sequence": 1, "event_id": "", "why": "missing", "at": NOON.isoformat()}]
}


@pytest.mark.parametrize(
    "way",
    [
        lambda: first_done().writes(2, running=3).runs(3).writes(3),
        lambda: first_done().writes(2).writes(2, by="b", running=3).runs(3, by="b").writes(3, by="b"),
        lambda: started().runs(1, how="failed").writes(0).writes(0, running=1).runs(1).writes(1),
        lambda: started().runs(1, how="away").runs(1).writes(1),
        lambda: started().writes(0),
        lambda: started().begins(1).later(120).writes(0, by="b", running=1).runs(1, by="b").writes(1, by="b"),
        lambda: started().runs(1, how="failed").writes(0).writes(1, by="operator"),
    ],
)
def test_what_a_call_may_do_is_allowed(way: Callable[[], Told]) -> None:
    assert way().found() == []


def test_what_may_have_been_handled_is_told() -> None:
    late = started().begins(1).later(120).writes(2, by="b", running=3, **UNSURE)
    assert late.found(repeatable=False) == []
    failed = started().runs(1, how="failed").writes(1, ttl=-1, **UNSURE)
    assert failed.found(repeatable=False) == []
    assert len(failed.found()) == 1


WRONG: dict[str, tuple[Callable[[], Told], str]] = {
    "it begins without a start": (lambda: Told().begins(1), "start-first"),
    "it begins by another's start": (lambda: started().begins(1, by="b"), "start-first"),
    "it begins twice": (lambda: started().runs(1).runs(1), "begun again by one start"),
    "it begins again after it failed": (lambda: started().runs(1, how="failed").runs(1), "begun again"),
    "it is recorded before its end": (lambda: started().begins(1).writes(1), "no step leads"),
    "it is recorded though it failed": (lambda: started().runs(1, how="failed").writes(1), "no step leads"),
    "it is put back though it is done": (lambda: started().runs(1).writes(0), "no step leads"),
    "another one records it": (lambda: started().runs(1).writes(1, by="b"), "no step leads"),
    "a young one is taken over": (lambda: started().begins(1).writes(0, by="b", running=1), "no step leads"),
    "a place is left out": (lambda: Told().writes(2, running=3), "no step leads"),
    "a place is passed that has an effect": (lambda: Told().writes(2), "no step leads"),
    "what is there is told as missing": (lambda: Told().writes(1, ttl=-1, **MISSING), "no step leads"),
    "the beginning changes": (lambda: first_done().writes(2, first=2), "no step leads"),
    "a place comes back": (lambda: first_done().writes(0, running=1), "no step leads"),
    "what runs expires": (lambda: Told().writes(0, running=1, ttl=1000), "open-stays"),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_each_mistake_is_found(mistake: str) -> None:
    way, why = WRONG[mistake]
    told = way().found()
    assert any(why in each for each in told), told
