"""Reads the change feed page by page, and reports a split of the range as an error.

The SDK follows a split silently, inside one continuation. A processor must not: the halves get leases of their own.
So a page of one half is dropped (:class:`FeedRangeGone`) and read again under the lease of that half.
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
"""The number of splits that are tolerated while the partitions' ids are read."""


@dataclass(frozen=True)
class FeedPage:
    """One page of a feed."""

    items: Sequence[Mapping[str, Any]]
    continuation: str
    """The LSN, in quotes, up to which the range was read with this page."""
    session_token: str
    request_charge: float


@dataclass(frozen=True)
class PhysicalPartition:
    """A physical partition and its range."""

    id: str
    feed_range: EpkRange


@dataclass(frozen=True)
class ContainerIdentity:
    """The identity of a container; one that is created again under the same name has another."""

    account_host: str
    database_rid: str
    container_rid: str


class FeedReader:
    """Reads the change feed of one container, in latest-version mode."""

    def __init__(self, container: ContainerProxy, identity: ContainerIdentity) -> None:
        self._container = container
        self.identity = identity

    @classmethod
    async def open(cls, container: ContainerProxy) -> "FeedReader":
        """Look up the container. Raises the SDK's errors, such as CosmosResourceNotFoundError."""
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
        """Read the next page after ``continuation``, or from ``start`` if ``continuation`` is None.

        With a session token only a replica that has reached it answers; without one, the SDK sends its own.

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
            # The SDK's equivalent of a 304: nothing new.
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
        """Returns the ranges of the present physical partitions, in order."""
        return [
            parse_sdk_feed_range(each) async for each in self._container.read_feed_ranges(force_refresh=True)
        ]

    async def partitions(self) -> list[PhysicalPartition]:
        """Returns the present physical partitions, in the order of their ranges.

        If one is split during the reads, all are read again.

        Raises the SDK's errors, and FeedRangeGone if they are split each time.
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
        # No public call returns the partition of a range. The session token of a read does: "<partition id>:<version>".
        page = await self.read(feed_range, continuation=None, start="Now", max_items=1)
        partition_id, separator, _ = page.session_token.partition(":")
        if not separator:
            raise LeasesUnusable(f"the service did not say which partition serves {feed_range}: start again")
        return partition_id


async def physical_partitions(container: ContainerProxy) -> list[PhysicalPartition]:
    """Returns the present physical partitions, in the order of their ranges.

    Raises the SDK's errors, and FeedRangeGone if they are split at each attempt: call again.
    """
    return await (await FeedReader.open(container)).partitions()


PartitionKeyValue = str | float | bool | Sequence[str | float | bool]
"""A hierarchical key has a value for each path."""


async def effective_key(container: ContainerProxy, partition_key: PartitionKeyValue) -> str:
    """Returns a partition key's position among the ranges of the leases. Raises the SDK's errors.

    Only the first call of a client reads the container.
    """
    return parse_sdk_feed_range(await container.feed_range_from_partition_key(partition_key)).min.upper()


async def identify(container: ContainerProxy) -> ContainerIdentity:
    """Look up the identity that names the container's leases. Raises the SDK's errors."""
    properties = await container.read()
    # "dbs/<database rid>/colls/<container rid>/"
    database_rid = properties["_self"].split("/")[1]
    # In lower case, as .NET's Uri.Host: another spelling would create a second set of leases.
    host = urlsplit(container.client_connection.url_connection).hostname or ""
    return ContainerIdentity(host, database_rid, properties["_rid"])
