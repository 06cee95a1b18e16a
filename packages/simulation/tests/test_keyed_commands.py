"""A change with a key that a simulated client repeats happens once, and gets one answer."""

import pytest

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from outbox_simulation.derived_invariants.found import LeftBehind, StoredChange, StoredEvent, ToldOf
from outbox_simulation.derived_invariants.rules import broken

KEY = AggregateKey("pile", "p")


def _broken(told: list[ToldOf], *causes: str) -> list[str]:
    found = LeftBehind(told=told)
    for number, cause in enumerate(causes, start=1):
        event = StoredEvent(f"e-{number}", KEY, number, "PileGrown", cause, {})
        found.changes.append(StoredChange(None, [event]))
    return [
        each.rule for each in broken(found) if "keyed" in each.rule or each.rule.startswith(("ack", "ref"))
    ]


def _told(number: int, outcome: str, events: int | None = None, *, decided: bool = False) -> ToldOf:
    return ToldOf(f"c#{number}", "pile p", outcome, events, "c", decided)


@pytest.mark.parametrize(
    ("told", "causes", "rules"),
    [
        ([_told(1, "unknown"), _told(2, "acknowledged")], ["c#1"], []),
        ([_told(1, "acknowledged", 1), _told(2, "acknowledged")], ["c#1"], []),
        ([_told(1, "refused"), _told(2, "refused")], [], []),
        ([_told(1, "unknown"), _told(2, "acknowledged", 1)], ["c#1", "c#2"], ["keyed change twice"]),
        ([_told(1, "refused"), _told(2, "acknowledged", 1)], ["c#2"], []),
        (
            [_told(1, "acknowledged", 1), _told(2, "refused", decided=True)],
            ["c#1"],
            ["keyed change told otherwise"],
        ),
        ([_told(1, "acknowledged", 1)], [], ["acknowledged, and not stored"]),
    ],
)
def test_its_attempts_are_judged_together(told: list[ToldOf], causes: list[str], rules: list[str]) -> None:
    assert _broken(told, *causes) == rules
