"""Whatever fails, each reaction happens once, and in the order that it declares; a bug in it is seen."""

from pathlib import Path

import pytest

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from outbox_simulation import simulate
from outbox_simulation.derived_invariants.found import LeftBehind, ReactionFound, StoredChange, StoredEvent
from outbox_simulation.derived_invariants.rules import broken
from simulated.reacting import commands, service
from tests.torture.planted import fits, seen
from tests.torture.planted_bugs import Planted

REACTIONS = "cosmos_outbox/cosmos/inbox/reactions.py"
DECISION = "cosmos_outbox/cosmos/inbox/reaction_decision.py"
_HERE = "packages/simulation/tests/test_reactions.py::test_each_reaction_happens_once"

PLANTED = [
    Planted(
        "record-is-written-whatever-is-there",  # created_only: an answer lost, or a message that comes again
        REACTIONS,
        "made = [Write.put(record, write.over)]",
        "made = [Write.upsert(record) if write.over is None else Write.replace(record, write.over)]",
        "",
        ("reaction twice",),
    ),
    Planted(
        "refused-transaction-is-taken-for-done",  # decide_anew: two messages for one heap at once
        REACTIONS,
        "            except (RecordChanged, EntryChanged):\n                pass\n",
        "            except (RecordChanged, EntryChanged):\n                return ReactionOutcome.APPLIED, ''\n",
        "",
        ("reaction left out",),
    ),
    Planted(
        "record-of-a-key-is-written-whatever-is-there",  # created_only: a change with a key that comes again
        "cosmos_outbox/cosmos/aggregates/unit_of_work.py",
        "        return Write.create(record_item(",
        "        return Write.upsert(record_item(",
        "",
        ("keyed change twice",),
    ),
    Planted(
        "what-comes-early-is-applied",  # next_only: a message that is set aside, and the next one
        DECISION,
        "    if order is InOrder.EACH and event.sequence is not None and",
        "    if order is InOrder.EACH and event.sequence is None and",
        "",
        ("reactions out of order",),
    ),
]


@pytest.mark.long
@pytest.mark.timeout(300)
def test_each_reaction_happens_once() -> None:
    simulate(service, commands(), seeds=2)


ORDERS = {
    "newest, of two sources": ([("a", 1), ("b", 2), ("a", 2), ("b", 3)], "newest", 0),
    "newest, an older one last": ([("a", 1), ("b", 2), ("a", 3), ("a", 2)], "newest", 1),
    "each, of two sources": ([("a", 1), ("b", 1), ("a", 2)], "each", 0),
    "each, one left out": ([("a", 1), ("b", 1), ("a", 3)], "each", 1),
}


@pytest.mark.parametrize("name", ORDERS)
def test_the_order_is_that_of_each_source(name: str) -> None:
    messages, order, wrong = ORDERS[name]
    target, found = AggregateKey("heap", "h-1"), LeftBehind()
    for number, (source, sequence) in enumerate(messages, start=1):
        key, cause = AggregateKey("pile", source), f"{source}-{sequence}"
        raised = StoredEvent(f"h-{number}", target, number, "Marked", "r", {"causationId": cause})
        found.changes += [
            StoredChange(None, [StoredEvent(cause, key, sequence, "PileGrown", "r", {})]),
            StoredChange(None, [raised], "marks"),
        ]
    wanted = {f"{source}-{sequence}": [(target, f"{source}-{sequence}")] for source, sequence in messages}
    outcomes = dict.fromkeys(wanted, "applied")
    found.reactions.append(ReactionFound("marks", order == "each", order == "newest", wanted, outcomes))
    result = [each for each in broken(found) if each.rule == "reactions out of order"]
    assert len(result) == wrong


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "bug", [pytest.param(each, marks=pytest.mark.long) for each in PLANTED], ids=lambda bug: bug.name
)
def test_a_bug_in_a_reaction_is_seen(bug: Planted, tmp_path: Path) -> None:
    seen(bug, tmp_path, _HERE, 60)


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.name)
def test_a_bug_can_be_planted_in_a_reaction(bug: Planted) -> None:
    assert fits(bug), f"{bug.file} has changed: plant {bug.name} anew"
