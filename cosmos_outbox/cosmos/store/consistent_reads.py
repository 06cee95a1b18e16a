"""Renews the session token of each physical partition, so that a read of the whole container misses no earlier commit.

A session token speaks for one physical partition, and a write reaches the one that its partition key lies in. So keys
are made up until each physical partition has one; nothing is stored under them. An answer's token names the partition
that gave it: where that is not the one that was meant, it was split in between, one half has no token, and all begins
anew. A later split does no harm: the token of a partition counts for those that are made of it.
"""

import asyncio
from collections.abc import Sequence

from cosmos_outbox.cosmos.store import changefeed
from cosmos_outbox.cosmos.store.client import ContainerProxy
from cosmos_outbox.cosmos.store.container import Container, StoreFailed
from cosmos_outbox.cosmos.store.errors import SDK_ERRORS, classify
from cosmos_outbox.cosmos.store.partition_key import Key
from cosmos_outbox.kernel.clock import new_id
from cosmos_outbox.outbox.errors import Unavailable

_ATTEMPTS = 5
_AT_ONCE = 32
_KEYS_A_PARTITION = 1_000
"""Far more than it takes: partitions are of about one size."""


async def renew_tokens(container: Container, feed: ContainerProxy) -> str:
    """Returns the renewed session tokens of all physical partitions, joined as one, for consistent reads.

    ``feed`` is the same container. Raises Throttled, Unavailable, Misconfigured.
    """
    for _ in range(_ATTEMPTS):
        try:
            partitions = await changefeed.physical_partitions(feed)
            tokens = await _renew_all(container, await _keys(container, feed, partitions))
        except changefeed.FeedRangeGone:
            continue
        except StoreFailed as error:
            raise error.failure.error() from error
        except SDK_ERRORS as error:
            raise classify(error).error() from error
        if [token.partition(":")[0] for token in tokens] == [each.id for each in partitions]:
            return ",".join(tokens)
    raise Unavailable("the store is splitting the container's partitions: try again later")


async def _keys(
    container: Container, feed: ContainerProxy, partitions: "Sequence[changefeed.PhysicalPartition]"
) -> list[Key]:
    """A partition key in each of the partitions. Where a key lies is computed, not asked for."""
    keys: dict[str, Key] = {}
    for _ in range(_KEYS_A_PARTITION * len(partitions)):
        key = container.paths.made_up(str(new_id()))
        place = await changefeed.effective_key(feed, key)
        keys |= {each.id: key for each in partitions if each.id not in keys and each.feed_range.holds(place)}
        if len(keys) == len(partitions):
            return [keys[each.id] for each in partitions]
    raise Unavailable("no partition key was found for one of the container's partitions: try again later")


async def _renew_all(container: Container, keys: Sequence[Key]) -> list[str]:
    """Renews the tokens side by side. Raises the first failure when all that were begun have ended."""
    tokens: list[str] = []
    for begin in range(0, len(keys), _AT_ONCE):
        some = (_renew_token(container, key) for key in keys[begin : begin + _AT_ONCE])
        for answer in await asyncio.gather(*some, return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer
            tokens.append(answer)
    return tokens


async def _renew_token(container: Container, partition_key: Key) -> str:
    await container.renew_token(partition_key)
    return container.seen(partition_key) or ""
