"""Reads the state of the deployed containers, and changes nothing.

A container's properties are metadata: an identity that may read data may read the properties too
(https://learn.microsoft.com/azure/cosmos-db/nosql/reference-data-plane-security). The account returns its default
consistency and its regions to every client; its throughput and firewall need other rights, and are not read.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from datetime import timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Self

from azure.core.exceptions import ClientAuthenticationError
from azure.cosmos.exceptions import CosmosBatchOperationError, CosmosHttpResponseError

from cosmos_outbox.cosmos.store.client import Account, CosmosClient, cosmos_client, read_account
from cosmos_outbox.cosmos.store.container import refused_batch
from cosmos_outbox.cosmos.store.errors import SDK_ERRORS, Kind, classify
from cosmos_outbox.cosmos.store.partition_key import PartitionKeyPaths
from cosmos_outbox.kernel.clock import Clock, utc_now
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.settings.connections import Connection, Credential
from cosmos_outbox.settings.errors import (
    CannotCheck,
    Denied,
    IgnoresConditions,
    UnusableConnection,
    first_line,
)

DEADLINE_SECONDS = 15.0
"""The longest that one call may take, with its retries and a sign-in."""


@dataclass(frozen=True)
class IndexingPolicy:
    """The paths of an item that are indexed, such as ``/data/deleted/?``."""

    enabled: bool
    """False for the indexing mode "none"."""
    included: tuple[str, ...]
    excluded: tuple[str, ...]
    composite: tuple[tuple[str, ...], ...] = ()
    """The paths of each composite index, in its order, such as ``/data/name``; all ascending."""


@dataclass(frozen=True)
class ContainerState:
    """A container as it is deployed."""

    partition_key: tuple[str, ...]
    default_ttl: int | None
    """Seconds; -1: on, and only items with a TTL of their own expire; None: off, and the TTL of items is ignored."""
    indexing: IndexingPolicy
    unique_keys: tuple[tuple[str, ...], ...] = ()
    """The paths of each unique key."""


class CosmosInspection(AbstractAsyncContextManager["CosmosInspection"]):
    """Inspects one account while it is entered. Entering raises Denied or CannotCheck."""

    def __init__(
        self, connection: Connection, credential: Credential | None, database: str, clock: Clock = utc_now
    ) -> None:
        with _reported(lambda _: None):
            self._client: CosmosClient = cosmos_client(connection, credential)
        self._database = database
        self._clock = clock
        self.ahead: timedelta | None = None
        """The time by which the service's clock is ahead of ours, within two seconds; None: no response had a date."""

    async def __aenter__(self) -> Self:
        try:
            with _reported(self._read_clock):
                async with asyncio.timeout(DEADLINE_SECONDS):
                    await self._client.__aenter__()
        except (Denied, CannotCheck):
            await self._client.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def account(self) -> Account:
        """Returns the properties that the account shows every client. Raises Denied, CannotCheck."""
        with _reported(self._read_clock):
            async with asyncio.timeout(DEADLINE_SECONDS):
                return await read_account(self._client.client_connection)

    async def container(self, name: str) -> ContainerState | None:
        """Returns the container, or None if it or its database does not exist. Raises Denied, CannotCheck."""
        proxy = self._client.get_database_client(self._database).get_container_client(name)
        try:
            with _reported(self._read_clock):
                async with asyncio.timeout(DEADLINE_SECONDS):
                    properties = await proxy.read(response_hook=lambda headers, _: self._read_clock(headers))
        except _Refused:
            return None
        return _state(properties)

    async def try_access(self, name: str, paths: PartitionKeyPaths) -> None:
        """Reads an item that cannot exist, and sends a batch that is refused: nothing changes.

        Raises Denied, CannotCheck, IgnoresConditions.
        """
        proxy = self._client.get_database_client(self._database).get_container_client(name)
        key, batch = refused_batch(paths)
        await self._is_refused(proxy.read_item(batch[0].item["id"], key))
        refused = self._is_refused(proxy.execute_item_batch([each.operation() for each in batch], key))
        if not await refused:
            raise IgnoresConditions

    async def _is_refused(self, call: Awaitable[object]) -> bool:
        with contextlib.suppress(_Refused), _reported(self._read_clock):
            async with asyncio.timeout(DEADLINE_SECONDS):
                await call
            return False
        return True

    def _read_clock(self, headers: Mapping[str, Any]) -> None:
        """Compares the clocks, if the response has a readable date, which a proxy may have removed."""
        for name, value in headers.items():
            if name.lower() == "date":
                with contextlib.suppress(ValueError):
                    self.ahead = parsedate_to_datetime(str(value)) - self._clock()


class _Refused(Exception):
    """The store answered 404, or 412."""


@contextmanager
def _reported(read_headers: Callable[[Mapping[str, Any]], None]) -> Iterator[None]:
    try:
        yield
    except (CosmosHttpResponseError, CosmosBatchOperationError) as error:
        read_headers(error.headers or {})
        failure = classify(error)
        if failure.kind in (Kind.MISSING, Kind.NO_CONTAINER, Kind.STALE):
            raise _Refused from error
        if failure.kind is Kind.DENIED:
            raise Denied(first_line(error)) from error
        raise CannotCheck(f"answers with an error ({failure.detail})") from error
    except ClientAuthenticationError as error:
        raise CannotCheck(f"cannot be asked, because signing in failed: {first_line(error)}") from error
    except TimeoutError as error:
        raise CannotCheck(f"does not answer within {DEADLINE_SECONDS:g} s") from error
    except SDK_ERRORS as error:
        raise CannotCheck(f"cannot be reached ({classify(error).detail})") from error
    except (
        ValueError
    ) as error:  # the SDK raises it for a connection string without its parts, or a damaged key
        raise UnusableConnection from error


def _state(properties: Mapping[str, Any]) -> ContainerState:
    policy = properties.get("indexingPolicy") or {}
    return ContainerState(
        partition_key=tuple((properties.get("partitionKey") or {}).get("paths") or ()),
        default_ttl=properties.get("defaultTtl"),
        indexing=IndexingPolicy(
            enabled=str(policy.get("indexingMode", "consistent")).lower() != "none",
            included=tuple(part["path"] for part in policy.get("includedPaths") or ()),
            excluded=tuple(part["path"] for part in policy.get("excludedPaths") or ()),
            composite=tuple(
                tuple(part["path"] for part in parts)
                for parts in policy.get("compositeIndexes") or ()
                if all(part.get("order", "ascending").lower() == "ascending" for part in parts)
            ),
        ),
        unique_keys=tuple(
            tuple(key["paths"]) for key in (properties.get("uniqueKeyPolicy") or {}).get("uniqueKeys") or ()
        ),
    )
