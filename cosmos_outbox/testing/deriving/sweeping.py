"""The sweep of effects finds what no message told: in a run at once, as it does later by itself."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from cosmos_outbox.wiring.subscription import Subscription

_SECONDS = 30.0


async def sweep_effects(subscriptions: Mapping[str, Subscription]) -> bool:
    """Whether every effect is asked for now. Raises StoreAway."""
    settled = True
    for each in subscriptions.values():
        if each.effect_sweep is not None:
            sweep = replace(each.effect_sweep, young=timedelta(), pause=timedelta())
            await sweep.run(seconds=_SECONDS)
            _, progress = await sweep.progress()
            settled = settled and progress is not None and not progress.left and progress.side is None
    return settled
