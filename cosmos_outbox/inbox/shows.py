"""Waits until a read model shows a write, or reports after a time that it does not yet."""

import asyncio
from typing import Any

from cosmos_outbox.inbox.errors import StoreAway
from cosmos_outbox.inbox.ports import Entries
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import monotonic

PATIENCE_SECONDS = 2.0
_PAUSE_SECONDS = 0.1


async def shows(
    entries: Entries[Any], key: AggregateKey, sequence: int, *, seconds: float = PATIENCE_SECONDS
) -> bool:
    """Whether the entry reaches ``sequence`` within the time. An unavailable store counts as not reached.

    An entry never goes back: a list that this client reads later shows at least the state that one read has shown.
    """
    until = monotonic() + seconds
    while True:
        try:
            found = await entries.read(key)
        except StoreAway:
            found = None
        if found is not None and found.entry.last_sequence >= sequence:
            return True
        if monotonic() + _PAUSE_SECONDS > until:
            return False
        await asyncio.sleep(_PAUSE_SECONDS)
