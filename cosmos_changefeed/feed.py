"""A page is read whole or not at all, and never hides that its range was split.

The SDK follows a split by itself, silently, inside one continuation. A processor must not do so: the halves get leases
of their own. So a page of one half is dropped (:class:`FeedRangeGone`) and read again under the lease of that half.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from urllib.parse import urlsplit

from azure.cosmos.aio import ContainerProxy

from cosmos_changefeed.continuation import Position, from_sdk, parse_sdk_feed_range, sdk_feed_range, to_sdk
from cosmos_changefeed.errors import FeedRangeGone, LeasesUnusable
from cosmos_changefeed.lease import EpkRange

SdkStart = Literal["Beginning", "Now"] | datetime

_SPLITS = 5
"""So often a partition may be split while it is asked who it is."""


@dataclass(frozen=True)
class FeedPage:
    """One page of a feed."""

    items: Sequence[Mapping[str, Any]]
    continuation: str
    """The LSN, in quotes, up to which the range is read after this page."""
    session_token: str
    request_charge: float


@dataclass(frozen=True)
class PhysicalPartition:
    """A physical partition and the range that it holds."""

    id: str
    feed_range: EpkRange


@dataclass(frozen=True)
class ContainerIdentity:
    """The identity of a container; a container that is made again under the same name has another identity."""

    account_host: str
    database_rid: str
    container_rid: str


class FeedReader:
    """The change feed of one container, latest-version mode."""

    def __init__(self, container: ContainerProxy, identity: ContainerIdentity) -> None:
        self._container = container
        self.identity = identity

    @classmethod
    async def open(cls, container: ContainerProxy) -> "FeedReader":
        """Look up the container. Raises the SDK's errors, CosmosResourceNotFoundError among them."""
        return cls(container, await identify(container))

    async def read(
        self,
        feed_range: EpkRange,
        *,
        continuation: str | None,
        start: SdkStart,
        max_items: int | None = None,
        session_token: str | None = None,
    ) -> FeedPage:
        """Read the next page after ``continuation``, or from ``start`` when ``continuation`` is None.

        With a session token no replica answers that has not come as far; without one, the SDK sends its own.

        Raises:
            FeedRangeGone: the range now lies in several physical partitions.
            AzureError: the SDK's own errors.
        """
        where: dict[str, Any]
        if continuation is None:
            where = {"feed_range": sdk_feed_range(feed_range), "start_time": start}
        else:
            position = Position(feed_range, continuation)
            where = {"continuation": to_sdk(position, self.identity.container_rid)}
        if max_items is not None:
            where["max_item_count"] = max_items
        if session_token is not None:
            where["session_token"] = session_token
        response: Mapping[str, str] = {}

        def keep(headers: Mapping[str, str], _body: Mapping[str, Any]) -> None:
            nonlocal response
            response = headers

        pages = self._container.query_items_change_feed(response_hook=keep, **where).by_page()
        try:
            items = [item async for item in await anext(pages)]
        except StopAsyncIteration:
            # The SDK's form of 304: nothing new.
            items = []
        positions = from_sdk(response["etag"])
        if len(positions) > 1:
            raise FeedRangeGone(f"{feed_range} was split")
        return FeedPage(
            items,
            positions[0].lsn,
            response.get("x-ms-session-token", ""),
            float(response.get("x-ms-request-charge", 0)),
        )

    async def ranges(self) -> list[EpkRange]:
        """The ranges of the present physical partitions, in order."""
        return [
            parse_sdk_feed_range(each) async for each in self._container.read_feed_ranges(force_refresh=True)
        ]

    async def partitions(self) -> list[PhysicalPartition]:
        """The present physical partitions, in the order of their ranges.

        One that is split while it is asked has ranges of its own: they are asked for again.

        Raises the SDK's errors, and FeedRangeGone when they are split each time.
        """
        for left in reversed(range(_SPLITS)):
            ranges = await self.ranges()
            try:
                ids = await asyncio.gather(*(self._partition_id(each) for each in ranges))
            except FeedRangeGone:
                if left:
                    continue
                raise
            return [PhysicalPartition(*each) for each in zip(ids, ranges, strict=True)]
        raise AssertionError("it has returned, or raised")

    async def _partition_id(self, feed_range: EpkRange) -> str:
        # No public call names the partition of a range. The session token of a read does: "<partition id>:<version>".
        page = await self.read(feed_range, continuation=None, start="Now", max_items=1)
        partition_id, separator, _ = page.session_token.partition(":")
        if not separator:
            raise LeasesUnusable(f"the service did not tell which partition serves {feed_range}: start again")
        return partition_id


async def physical_partitions(container: ContainerProxy) -> list[PhysicalPartition]:
    """The present physical partitions, in the order of their ranges.

    Raises the SDK's errors, and FeedRangeGone when they are split each time they are asked: ask again.
    """
    return await (await FeedReader.open(container)).partitions()


PartitionKeyValue = str | float | bool | Sequence[str | float | bool]
"""A hierarchical key has a value for each path."""


async def effective_key(container: ContainerProxy, partition_key: PartitionKeyValue) -> str:
    """Where a partition key lies among the ranges of the leases. Raises the SDK's errors.

    The container is read by the first call of its client alone.
    """
    return parse_sdk_feed_range(await container.feed_range_from_partition_key(partition_key)).min.upper()


async def identify(container: ContainerProxy) -> ContainerIdentity:
    """Look up the identity that names the container's leases. Raises the SDK's errors."""
    properties = await container.read()
    # "dbs/<database rid>/colls/<container rid>/"
    database_rid = properties["_self"].split("/")[1]
    # In lower case, as .NET's Uri.Host: with another spelling there would be a second set of leases.
    host = urlsplit(container.client_connection.url_connection).hostname or ""
    return ContainerIdentity(host, database_rid, properties["_rid"])
