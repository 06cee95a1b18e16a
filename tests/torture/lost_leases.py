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
    """Delete one lease, half of them or all, as soon as the store answers; whether any was deleted."""
    client = CosmosClient.from_connection_string(stack.cosmos.connection_string)
    container = client.get_database_client(DATABASE).get_container_client(LEASES)
    deleted = 0
    try:
        async with asyncio.timeout(_DEADLINE_SECONDS), client:
            while not deleted:
                try:
                    names = [item["id"] async for item in container.read_all_items() if "LeaseToken" in item]
                    most = min(len(names), max(1, round(_SHARES[which] * len(names))))
                    for name in chance.sample(sorted(names), most):
                        await container.delete_item(name, name)
                        deleted += 1
                except (AzureError, OSError):
                    await asyncio.sleep(_PAUSE_SECONDS)
    except TimeoutError:
        pass
    finally:
        await client.close()  # the SDK leaves its session open when it could not reach the account
    return deleted > 0
