"""Makes the Cosmos client from a connection setting without any I/O, and keeps the session tokens of a container.

An account that takes writes in several regions is never taken for a store that can be used.

There each region commits for itself, and the last writer wins afterwards: an ETag is compared in one region only, two
changes get one sequence, and two instances of the relay own one lease. No adapter can see it from an answer, so the
account's own document is asked.

Read-your-writes for this process: the newest session token of each partition, never one that is older than another.

A session token counts for one physical partition. Answers may come in another order than the service gave them, so
tokens are compared, not overwritten. Tokens of two physical partitions are both kept: when a partition is split, an
answer of the parent may come after an answer of the child. The service goes by the newest token of a partition and its
parents; the SDKs' own session containers keep a token for each partition too.

A token that no replica can satisfy, such as one of a container that was restored, is doubted: the request that met the
token fails, and the token is renewed before the next read. What came since the doubt then takes its place.
"""

import re
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from azure.core.exceptions import ServiceRequestTimeoutError
from azure.core.pipeline.transport import AsyncHttpTransport
from azure.cosmos.aio import ContainerProxy, CosmosClient

from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.settings.connections import Connection, Credential
from cosmos_outbox.settings.errors import Misconfigured

if TYPE_CHECKING:
    from aiohttp import ClientSession

_MOST = 10_000
"""How many partitions are remembered; the one that was used longest ago is forgotten first."""

_MOST_RANGES = 2
"""A parent and its child. No answer comes so late that the child has been split by then (``DEADLINE_SECONDS``)."""

_TOKEN = re.compile(r"(?P<range>[^:,]+):(?P<version>-?\d+)#(?P<lsn>\d+)(#.*)?")
"""``<partition key range>:<version>#<global LSN>#<region>=<LSN>...``, as the SDKs read it."""


class SdkSessions(dict[str, Any]):
    """The session tokens that the SDK keeps: none under an unknown id; what is gone may be deleted again.

    azure-cosmos 4.17 learns a container's id by an item, or by a request that brings no session token of its own. It
    files the token of an answer without an item (a list, a 404) under None where it has not learned the id yet, for all
    containers: a read of one then asks for what another has seen, and fails (404/1002). After that it forgets the
    container's session, and at the next such answer it ends with a KeyError, since there is none left to forget
    (``SessionContainer.set_session_token``, ``clear_session_token``). We send our own tokens where we rely on one.
    """

    def __setitem__(self, container: str | None, tokens: Any) -> None:
        if container is not None:
            super().__setitem__(container, tokens)

    def __delitem__(self, container: str) -> None:
        self.pop(container, None)


class SessionTokens:
    """The session tokens of one container, by partition key."""

    def __init__(self) -> None:
        self._tokens: OrderedDict[str, str] = OrderedDict()
        self._doubted: dict[str, str | None] = {}
        """With the newest token that came since the doubt."""

    def get(self, partition_key: str) -> str | None:
        """The newest token that an answer about this partition carried."""
        return self._tokens.get(partition_key)

    def merge(self, partition_key: str, token: str | None) -> None:
        """Take a token of an answer, unless a newer one is there already."""
        if token is None:
            return
        if partition_key in self._doubted:
            self._doubted[partition_key] = newest(self._doubted[partition_key], token)
        self._tokens[partition_key] = newest(self._tokens.get(partition_key), token)
        self._tokens.move_to_end(partition_key)
        if len(self._tokens) > _MOST:
            forgotten, _ = self._tokens.popitem(last=False)
            self._doubted.pop(forgotten, None)

    def doubt(self, partition_key: str, token: str | None) -> None:
        """No replica could satisfy this token. A newer one that came in between is not doubted."""
        if token is not None and self._tokens.get(partition_key) == token:
            self._doubted.setdefault(partition_key)

    def is_doubted(self, partition_key: str) -> bool:
        """Whether the token must be renewed before the next read."""
        return partition_key in self._doubted

    def trust(self, partition_key: str) -> None:
        """The token was renewed since the doubt: what came since then is as new as the store, and holds."""
        if token := self._doubted.pop(partition_key, None):
            self._tokens[partition_key] = token


def newest(known: str | None, token: str) -> str:
    """The newer of two tokens; of two partition key ranges, as after a split, the tokens of both, joined by a comma."""
    old, new = _by_range(known or ""), _by_range(token)
    if old is None or new is None:  # no form that the SDKs know
        return token
    newer = {each: match for each, match in new.items() if each not in old or _age(match) >= _age(old[each])}
    return ",".join([match[0] for match in (old | newer).values()][-_MOST_RANGES:])


def _by_range(token: str) -> dict[str, re.Match[str]] | None:
    """The tokens that are joined in this one; None: one of them cannot be read."""
    found = [_TOKEN.fullmatch(each) for each in token.split(",") if each]
    return None if None in found else {each["range"]: each for each in found if each is not None}


def _age(token: re.Match[str]) -> tuple[int, int]:
    return int(token["version"]), int(token["lsn"])


_WRITES_ELSEWHERE = (
    "the Cosmos DB account takes writes in several regions, and the last writer wins: changes overwrite one another "
    "in silence, sequences are given twice, and a lease has two owners. Turn multi-region writes off: "
    "docs/operate/regions.md"
)


@dataclass(frozen=True)
class Account:
    """The properties of the account that every client may read."""

    consistency: str | None
    """The default consistency level; None: its answer lacks it."""
    writes_in_several_regions: bool

    def check(self) -> None:
        """Return if the account can be used. Raises Misconfigured."""
        if self.writes_in_several_regions:
            raise Misconfigured(_WRITES_ELSEWHERE)


async def read_account(connection: Any) -> Account:
    """Ask the account, by the ``client_connection`` of a client or a container. Raises the SDK's errors."""
    # The synchronous client has a public call for it. Tests pin that this one is there, and the names.
    account = await connection.GetDatabaseAccount()
    policy = account.ConsistencyPolicy or {}
    return Account(
        policy.get("defaultConsistencyLevel"),
        bool(account._EnableMultipleWritableLocations),  # noqa: SLF001 - the SDK shows it only here
    )


__all__ = ["ContainerProxy", "CosmosClient", "cosmos_client"]

_THROTTLE_RETRIES = 3
_SECONDS = 3


class _Client(CosmosClient):
    """With sessions of the SDK that mix nothing up."""

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        session = self.client_connection.session
        if session is not None:  # the account's consistency is that of sessions
            session.session_container.rid_to_session_token = SdkSessions()
        return self


def cosmos_client(
    connection: Connection, credential: Credential | None, *, session: "ClientSession | None" = None
) -> CosmosClient:
    """A client with few retries of its own: a caller waits, and the unit of work repeats every call that is safe.

    ``session``: sends the requests in the place of aiohttp's own.
    """
    from urllib.request import getproxies  # noqa: PLC0415 - both are slow to import, and not needed before

    options: dict[str, Any] = {
        # With them aiohttp starts two threads for each request, to look for a proxy and for a password in ~/.netrc.
        "transport": TrackingTransport(use_env_settings=bool(getproxies()), session=session),
        "retry_total": 1,
        "retry_connect": 1,
        "retry_read": 1,
        "retry_throttle_total": _THROTTLE_RETRIES,
        "retry_throttle_backoff_max": _SECONDS,
        "connection_timeout": _SECONDS,
    }
    if connection.connection_string:
        return _Client.from_connection_string(connection.connection_string, **options)
    assert credential is not None
    return _Client(connection.address, credential, **options)


_NOT_WRITTEN = {403, 449}
"""Statuses of a failure that passes: a region that takes no writes now, and a write to be sent again as it is
(https://learn.microsoft.com/rest/api/cosmos-db/http-status-codes-for-cosmosdb)."""


@dataclass
class Attempts:
    """The outcomes of the attempts at one transactional batch."""

    answer_lost: bool = False
    """An attempt may have reached the service, and no answer came that shows its outcome."""
    throttled: bool = False
    """The newest answer says 429."""
    succeeded: bool = False
    """The newest answer is a success. It may be lost all the same: what stands in it cannot be read, or not in time."""

    def outcome(self, failure: Failure) -> Failure:
        """Returns the meaning of the batch's failure, given the outcomes of its attempts."""
        if failure.kind is not Kind.PASSING or failure.status:
            known = failure.kind is not Kind.PASSING or failure.status in _NOT_WRITTEN
            return replace(failure, answer_lost=self.answer_lost or not known)
        answer_lost = self.answer_lost or self.succeeded
        if self.throttled and not answer_lost:  # the deadline came while the SDK waited to try again
            return replace(failure, kind=Kind.THROTTLED)
        return replace(failure, answer_lost=answer_lost)


_attempts: ContextVar[Attempts | None] = ContextVar("attempts", default=None)


@contextmanager
def track_attempts() -> Iterator[Attempts]:
    """Notes what becomes of the batches that are sent in this context."""
    attempts = Attempts()
    token = _attempts.set(attempts)
    try:
        yield attempts
    finally:
        _attempts.reset(token)


_BATCH = "x-ms-cosmos-is-batch-request"


class TrackingTransport(AsyncHttpTransport[Any, Any]):
    """The SDK's own transport, which reports to :func:`track_attempts` what it sees.

    Whether the answer to a write was lost is known here alone: the SDK makes attempts of its own, in silence. It
    repeats a write after a broken connection, and after a 503, which leaves the outcome open, too. The first answer
    that a caller sees may then be the answer to a repetition: a 429 to a batch that was committed before.
    """

    def __init__(self, **options: Any) -> None:
        from azure.core.pipeline.transport import AioHttpTransport  # noqa: PLC0415 - aiohttp is slow to import

        self._transport = AioHttpTransport(**options)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Open the session."""
        await self._transport.open()

    async def close(self) -> None:
        """Close the session."""
        await self._transport.close()

    async def send(self, request: Any, **options: Any) -> Any:
        """Send the request. Raises as the SDK's transport does."""
        attempts = _attempts.get()
        if attempts is None or _BATCH not in request.headers:
            return await self._transport.send(request, **options)
        try:
            response = await self._transport.send(request, **options)
        except BaseException as error:  # a cancelled one too: the request is under way
            attempts.answer_lost = attempts.answer_lost or _may_have_arrived(error)
            raise
        attempts.throttled, attempts.succeeded = response.status_code == 429, response.status_code < 300
        attempts.answer_lost = attempts.answer_lost or _leaves_outcome_open(response.status_code)
        return response


def _may_have_arrived(error: BaseException) -> bool:
    """False only where no connection was made: then nothing can have been sent."""
    from aiohttp import ClientConnectorError  # noqa: PLC0415 - the transport has imported it

    unconnected = isinstance(error.__cause__, ClientConnectorError)
    return not (unconnected or isinstance(error, ServiceRequestTimeoutError))


def _leaves_outcome_open(status: int) -> bool:
    """408 and 5xx: the batch may be committed (the table of statuses in :mod:`cosmos_outbox.cosmos.store.errors`)."""
    return status == 408 or status >= 500
