"""Lease documents are deleted behind the relays' backs, as by an operator who clears a container."""

import asyncio
import random

from azure.core.exceptions import AzureError
from azure.cosmos.aio import CosmosClient

from tests.support.azure import LEASES
from tests.torture.stack import DATABASE, Stack

_DEADLINE_SECONDS = 10.0
_PAUSE_SECONDS = 0.3
_SHARES = {"one": 0.0, "half": 0.5, "all": 1.0}


async def delete_leases(stack: Stack, chance: random.Random, which: str) -> bool:
    """Delete one lease, half of them or all, as soon as the store answers; whether any was there."""
    try:
        async with asyncio.timeout(_DEADLINE_SECONDS):
            while True:
                try:
                    return await _delete(stack, chance, _SHARES[which]) > 0
                except (AzureError, OSError):
                    await asyncio.sleep(_PAUSE_SECONDS)
    except TimeoutError:
        return False


async def _delete(stack: Stack, chance: random.Random, share: float) -> int:
    client = CosmosClient.from_connection_string(stack.cosmos.connection_string)
    container = client.get_database_client(DATABASE).get_container_client(LEASES)
    try:
        async with client:
            names = [item["id"] async for item in container.read_all_items() if "LeaseToken" in item]
            chosen = chance.sample(sorted(names), min(len(names), max(1, round(share * len(names)))))
            for name in chosen:
                await container.delete_item(name, name)
    finally:
        await client.close()  # the SDK leaves its session open when it could not reach the account
    return len(chosen)
