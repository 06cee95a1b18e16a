"""A change with a key that a simulated client repeats happens once, and gets one answer."""

import pytest

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from outbox_simulation.derived_invariants.found import ClientOutcome, LeftBehind, StoredChange, StoredEvent
from outbox_simulation.derived_invariants.rules import broken

KEY = AggregateKey("pile", "p")


def _broken(outcomes: list[ClientOutcome], *causes: str) -> list[str]:
    found = LeftBehind(outcomes=outcomes)
    for number, cause in enumerate(causes, start=1):
        event = StoredEvent(f"e-{number}", KEY, number, "PileGrown", cause, {})
        found.changes.append(StoredChange(None, [event]))
    return [
        each.rule for each in broken(found) if "keyed" in each.rule or each.rule.startswith(("ack", "ref"))
    ]


def _outcome(number: int, outcome: str, events: int | None = None, *, decided: bool = False) -> ClientOutcome:
    return ClientOutcome(f"c#{number}", "pile p", outcome, events, "c", decided)


@pytest.mark.parametrize(
    ("outcomes", "causes", "rules"),
    [
        ([_outcome(1, "unknown"), _outcome(2, "acknowledged")], ["c#1"], []),
        ([_outcome(1, "acknowledged", 1), _outcome(2, "acknowledged")], ["c#1"], []),
        ([_outcome(1, "refused"), _outcome(2, "refused")], [], []),
        ([_outcome(1, "unknown"), _outcome(2, "acknowledged", 1)], ["c#1", "c#2"], ["keyed change twice"]),
        ([_outcome(1, "refused"), _outcome(2, "acknowledged", 1)], ["c#2"], []),
        (
            [_outcome(1, "acknowledged", 1), _outcome(2, "refused", decided=True)],
            ["c#1"],
            ["keyed change answered otherwise"],
        ),
        ([_outcome(1, "acknowledged", 1)], [], ["acknowledged, and not stored"]),
    ],
)
def test_its_attempts_are_judged_together(
    outcomes: list[ClientOutcome], causes: list[str], rules: list[str]
) -> None:
    assert _broken(outcomes, *causes) == rules
