"""Checks days without a relay: expired events reach nobody, but operators are warned before, and no more is lost.

Half of an event's time to live is an operator's: until then the status shows only that events wait. From then on it
reports them as at risk, also without a running relay. Expired events leave a gap, which the read models close from
their source; younger events are sent as ever.
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from outbox_simulation.engine.deployment import Deployment
from outbox_simulation.engine.operator import PASSING
from outbox_simulation.engine.watching import Watcher
from outbox_simulation.invariants.violation import Violation

_REPORTED_WITHIN_SECONDS = 300.0
_COMES_BACK_IN_TIME = 0.4
_AT_RISK, _NOT_YET = 0.55, 0.45
"""Shares of the time to live: the status must report a risk after the first, and none before the second."""


async def expire(
    deployment: Deployment, watcher: Watcher, chance: Random, work: Callable[[], Awaitable[None]]
) -> list[Violation]:
    """Returns what was not reported in time. ``work``: clients go on for a while."""
    ground, ttl = deployment.ground, deployment.settings.event_ttl_seconds
    began = ground.loop.time()
    for each in deployment.relays:
        each.halted = True
        each.crash()
    await work()
    found = []
    for share, wanted in ((_NOT_YET, False), (_AT_RISK, True)):
        await _sleep_until(deployment, began + share * ttl)
        found += await _at_risk(deployment, wanted=wanted, share=share)
    if chance.random() >= _COMES_BACK_IN_TIME:
        await _sleep_until(deployment, began + 0.9 * ttl)
        await work()  # events stored now outlive the outage
        await _sleep_until(deployment, began + 1.2 * ttl)
        ground.store.account.purge()
    watcher.received(ground.bus.taken)
    history, dead = ground.history, ground.loop.time() - ttl
    skip_markers = history.skip_markers().keys()  # a skip marker replaces the event that it names
    delivered = history.deliveries.keys() | skip_markers
    unsent = {name: each.at for name, each in history.stored.items() if name not in delivered}
    unsent |= {name: each[0].at for name, each in history.unsequenced.items() if name not in delivered}
    history.expired = {name for name, at in unsent.items() if at <= dead}
    ground.trace.note("expired unsent", detail=str(len(history.expired)))
    for each in deployment.relays:
        each.halted = False
        each.begin()
    return found


async def _sleep_until(deployment: Deployment, at: float) -> None:
    """Runs nothing until then, since days of a deployment would take too many steps."""
    for each in [*deployment.processes, *deployment.desks]:
        if each.instance.alive:
            each.crash()
    await asyncio.sleep(at - deployment.ground.loop.time())
    for each in [*deployment.processes, *deployment.desks]:
        each.begin()


async def _at_risk(deployment: Deployment, *, wanted: bool, share: float) -> list[Violation]:
    """Returns what the status does not report, or reports too early."""
    loop, desk, history = deployment.ground.loop, deployment.desks[0], deployment.ground.history
    if not any(name not in history.deliveries for name in history.stored):
        return []
    until = loop.time() + _REPORTED_WITHIN_SECONDS
    while True:
        try:
            status = await loop.begin(desk.instance, desk.wired.operator.observer.status())
        except PASSING as error:
            if loop.time() > until:
                return [Violation("expires in silence", f"how far the relay is, is not known: {error!r}")]
            await asyncio.sleep(1.0)
            continue
        if status.events_at_risk is wanted:
            return []
        return [
            Violation("expires in silence", f"at {share:.0%} of the TTL: at risk is {status.events_at_risk}")
        ]
