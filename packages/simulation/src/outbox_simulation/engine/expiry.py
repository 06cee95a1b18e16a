"""No relay runs for days: nobody gets what expires unsent, but somebody is told before, and nothing else is lost.

Half of an event's time to live is an operator's: until then nothing says more than that events wait. From then on
whoever asks is told that they are at risk, also where nothing relays, and the first relay that comes back says so as
long as it finds one. What has expired leaves a gap, which the read models close from their source; what is younger is
sent as ever.
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from outbox_simulation.engine.deployment import Deployment
from outbox_simulation.engine.operator import PASSING
from outbox_simulation.engine.watching import Watcher
from outbox_simulation.judging.violation import Violation

_TOLD_WITHIN_SECONDS = 300.0
_COMES_BACK_IN_TIME = 0.4
_AT_RISK, _NOT_YET = 0.55, 0.45
"""Of the time to live: whoever asks now is told that something is at risk; whoever asks now is not."""


async def expire(
    deployment: Deployment, watcher: Watcher, chance: Random, work: Callable[[], Awaitable[None]]
) -> list[Violation]:
    """``work``: clients go on for a while. What was not told in time."""
    ground, ttl = deployment.ground, deployment.settings.event_ttl_seconds
    began = ground.loop.time()
    for each in deployment.relays:
        each.halted = True
        each.crash()
    await work()
    found = []
    for share, wanted in ((_NOT_YET, False), (_AT_RISK, True)):
        await _sleep_until(deployment, began + share * ttl)
        found += await _told(deployment, wanted=wanted, share=share)
    if chance.random() >= _COMES_BACK_IN_TIME:
        await _sleep_until(deployment, began + 0.9 * ttl)
        await work()  # what is stored now outlives the absence
        await _sleep_until(deployment, began + 1.2 * ttl)
        ground.store.account.purge()
    watcher.received(ground.bus.taken)
    history, dead = ground.history, ground.loop.time() - ttl
    notices = history.notices().keys()  # a notice stands in the place of what it tells of
    told = history.deliveries.keys() | notices
    unsent = {name: each.at for name, each in history.stored.items() if name not in told}
    unsent |= {name: each[0].at for name, each in history.unsequenced.items() if name not in told}
    history.expired = {name for name, at in unsent.items() if at <= dead}
    ground.trace.note("expired unsent", detail=str(len(history.expired)))
    said = len(list(ground.trace))
    for each in deployment.relays:
        each.halted = False
        each.begin()
    if unsent and not history.expired:
        await asyncio.sleep(_TOLD_WITHIN_SECONDS)
        lines = [step.detail for step in list(ground.trace)[said:] if step.what == "says"]
        if not any("of its TTL and is not forwarded yet" in each for each in lines):
            found.append(
                Violation("expires in silence", "the relay came back, and said nothing of their age")
            )
    return found


async def _sleep_until(deployment: Deployment, at: float) -> None:
    """Nothing runs meanwhile, which would take as many steps as a deployment does in days."""
    for each in [*deployment.processes, *deployment.desks]:
        if each.instance.alive:
            each.crash()
    await asyncio.sleep(at - deployment.ground.loop.time())
    for each in [*deployment.processes, *deployment.desks]:
        each.begin()


async def _told(deployment: Deployment, *, wanted: bool, share: float) -> list[Violation]:
    """What somebody who asks is not told, or is told too early."""
    loop, desk, history = deployment.ground.loop, deployment.desks[0], deployment.ground.history
    if not any(name not in history.deliveries for name in history.stored):
        return []
    until = loop.time() + _TOLD_WITHIN_SECONDS
    while True:
        try:
            status = await loop.begin(desk.instance, desk.wired.outbox.observer.status())
        except PASSING as error:
            if loop.time() > until:
                return [Violation("expires in silence", f"how far the relay is, nobody can tell: {error!r}")]
            await asyncio.sleep(1.0)
            continue
        if status.events_at_risk is wanted:
            return []
        return [
            Violation("expires in silence", f"at {share:.0%} of the TTL: at risk is {status.events_at_risk}")
        ]
