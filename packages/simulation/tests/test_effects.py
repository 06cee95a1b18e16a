"""Whatever fails, an effect is asked for each event, in the order of its aggregate; a bug in that is seen."""

import asyncio
from pathlib import Path

import pytest

from cosmos_outbox import Event, Names, Service
from cosmos_outbox.inbox.errors import EffectRejected
from cosmos_outbox.kernel import clock
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from outbox_simulation import simulate
from outbox_simulation.derived_invariants.found import LeftBehind, StoredChange, StoredEvent
from outbox_simulation.derived_invariants.rules import broken
from simulated.reacting import Pile, commands
from tests.torture.planted import fits, seen
from tests.torture.planted_bugs import Planted

service = Service("piles", [Pile], Names(database="piles", container="piles", topic="pile-events"))


@service.effect("letters", of=Pile)
async def write(event: Event) -> None:
    """It lasts, so that a process may die before its end; now and then it is surely not done."""
    await asyncio.sleep(0.5)
    if clock.randomness().random() < 0.1:
        raise EffectRejected("no stamp is left")


_HERE = "packages/simulation/tests/test_effects.py::test_each_effect_is_asked_for_in_order"

PLANTED = [
    Planted(
        "message-is-done-though-its-effect-failed",  # failure-set-aside
        "cosmos_outbox/inbox/effect.py",
        "            raise EffectFailed(reason_of(error)) from error  # failure-set-aside\n",
        "            return\n",
        "",
        ("effect not asked for",),
    ),
    Planted(
        "event-overtakes-what-is-set-aside",  # goes-behind
        "cosmos_outbox/inbox/receiver.py",
        "or (self.in_order and await self.set_aside.waits(aggregate))",
        "or False",
        "",
        ("effects out of order",),
    ),
]


@pytest.mark.timeout(300)
def test_each_effect_is_asked_for_in_order() -> None:
    simulate(service, commands(), seeds=2)


@pytest.mark.parametrize(("order", "wrong"), [([1, 2, 1, 3], False), ([1, 3, 2], True), ([2, 1], True)])
def test_the_first_time_of_each_counts(order: list[int], wrong: bool) -> None:
    key = AggregateKey("pile", "p-1")
    events = [StoredEvent(f"e-{n}", key, n, "PileGrown", "r", {}) for n in (1, 2, 3)]
    found = LeftBehind(
        changes=[StoredChange(None, events)], effects={"letters": ("pile", [f"e-{n}" for n in order], None)}
    )
    assert ("effects out of order" in {each.rule for each in broken(found)}) is wrong


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "bug", [pytest.param(each, marks=pytest.mark.long) for each in PLANTED], ids=lambda bug: bug.name
)
def test_a_bug_in_an_effect_is_seen(bug: Planted, tmp_path: Path) -> None:
    seen(bug, tmp_path, _HERE, 120)


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.name)
def test_a_bug_can_be_planted_in_an_effect(bug: Planted) -> None:
    assert fits(bug), f"{bug.file} has changed: plant {bug.name} anew"
