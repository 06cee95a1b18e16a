"""Whoever loses a lease, in whatever moment, says so, leaves it alone and delivers nothing more of it."""

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from cosmos_changefeed import ChangeFeedContext, ChangeFeedProcessor, Changes, LeaseLost
from cosmos_changefeed.lease import Lease
from cosmos_changefeed.lease_store import LeaseStore
from devstack.testing import eventually
from tests.changefeed.support import FAST, InMemory, Recorder

NEVER_LOOKS = replace(FAST, acquire_interval=10**6, expiration_interval=10**6, renew_interval=10**5)
"""After its start an instance takes no lease, and renews none: what it does it does at once."""

Meanwhile = Callable[[str, Mapping[str, Any]], Awaitable[object]]


@pytest.fixture
def meanwhile(memory: InMemory, monkeypatch: pytest.MonkeyPatch) -> Callable[[Meanwhile], None]:
    """Somebody does this right before, or after, a document of the lease container is read."""
    read = memory.leases.read_item

    def set_up(before: Meanwhile | None = None, after: Meanwhile | None = None) -> None:
        async def noted(item: str, **named: Any) -> Any:
            if before is not None:
                await before(item, await read(item, partition_key=item))
            document = await read(item, **named)
            if after is not None:
                await after(item, document)
            return document

        monkeypatch.setattr(memory.leases, "read_item", noted)

    return set_up


async def the_lease(memory: InMemory) -> tuple[LeaseStore, Lease]:
    """With an owner."""
    async with Recorder().processor(memory, clock=memory.clock):
        pass
    store = await memory.lease_store()
    [lease] = await store.all()
    return store, await store.acquire(lease, "a")


async def delete(memory: InMemory, item: str) -> None:
    await memory.leases.delete_item(item, item)


async def touch(memory: InMemory, item: str) -> None:
    """Its ETag changes, and nothing else."""
    await memory.leases.replace_item(item, await memory.leases.read_item(item, item))
