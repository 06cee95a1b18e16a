"""A service whose piles ring a bell as they grow: now and then it is broken, or away, or slow."""

import asyncio

from cosmos_outbox import Event, Names, Service
from cosmos_outbox.inbox.errors import EffectAway, EffectNotDone
from cosmos_outbox.kernel import clock
from cosmos_outbox.testing.simulation.instance import name_of_current
from tests.simulation.reacting import Pile
from tests.simulation.replayed.commits import Commit
from tests.simulation.replayed.effects import Ran

service = Service("bells", [Pile], Names(database="bells", container="piles", topic="pile-events"))
STEPS: list[Commit | Ran] = []
"""What the bell did in the run, and in between what the store carried out."""


@service.effect("bells", of=Pile, on={"PileGrown"})
async def ring(event: Event) -> None:
    by, luck = name_of_current(), clock.randomness()
    STEPS.append(Ran("begins", event.id, by))
    how = "failed"
    try:
        await asyncio.sleep(luck.choice([0.0, 0.1, 3.0]))
        if luck.random() < 0.1:
            raise EffectNotDone("it is broken")
        if luck.random() < 0.1:
            how = "away"
            raise EffectAway("nobody hears it")
        how = "done"
    finally:
        STEPS.append(Ran(how, event.id, by))
