"""The sweeps find what no message told: in a run at once, as they do later by themselves."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from cosmos_outbox.wiring.subscription import Subscription

_SECONDS = 30.0


async def sweep_all(subscriptions: Mapping[str, Subscription]) -> bool:
    """Whether every entry was looked at. Raises StoreAway."""
    settled = True
    for each in subscriptions.values():
        if each.read_model is not None and each.swept:
            model = replace(each.read_model.sweep, young=timedelta())
            before, _ = await model.progress()
            after = await model.round(before, seconds=_SECONDS)
            settled = settled and (before is None or before.side is None) and after.side is None
    return settled
