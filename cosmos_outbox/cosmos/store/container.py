"""One container: bounded calls of the SDK, and read-your-writes for this process.

Every call ends within ``DEADLINE_SECONDS``, with an answer or a :class:`StoreFailed`. A transactional batch does not
feed the SDK's session container, so the session token of each batch is kept here and handed to later reads of the same
partition. Without that token, a read straight after a write may see the version before.

The SDK's pager gives pages one by one; here is the first of them, and the token of the next.

A success whose body does not say what it must is no answer: what was asked for may be stored or not.

A proxy can empty a body, or put another in its place. The SDK then raises errors of Python, such as TypeError for an
empty body.

The writes of a transactional batch: each says what must be there for the whole batch to be stored.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import Any, Literal, Self

from azure.core.async_paging import AsyncItemPaged
from azure.cosmos.aio import ContainerProxy, CosmosClient

from cosmos_outbox.cosmos.store.client import SessionTokens, read_account, track_attempts
from cosmos_outbox.cosmos.store.errors import SDK_ERRORS, Failure, Kind, classify
from cosmos_outbox.cosmos.store.partition_key import (
    NO_ITEM,
    PARTITION_KEY,
    TOKEN_ID,
    Item,
    Key,
    PartitionKeyPaths,
)
from cosmos_outbox.kernel.clock import new_id, utc_now
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.settings.errors import Misconfigured


@dataclass(frozen=True)
class Write:
    """One write in a transactional batch; with ``if_match`` the item must be at that version."""

    kind: Literal["create", "replace", "upsert", "delete", "patch"]
    item: Item
    if_match: str | None = None

    @classmethod
    def create(cls, item: Item) -> Self:
        """A write that fails when the item exists."""
        return cls("create", item)

    @classmethod
    def replace(cls, item: Item, if_match: str) -> Self:
        """A write that fails unless the item exists at that version."""
        return cls("replace", item, if_match)

    @classmethod
    def put(cls, item: Item, over: str | None) -> Self:
        """A write over the version that was read; None: there was no item."""
        return cls.create(item) if over is None else cls.replace(item, over)

    @classmethod
    def upsert(cls, item: Item) -> Self:
        """A write that replaces the item or creates it."""
        return cls("upsert", item)

    @classmethod
    def delete(cls, item_id: str, if_match: str | None = None) -> Self:
        """A write that fails unless the item exists; with ``if_match``, at that version."""
        return cls("delete", {"id": item_id}, if_match)

    @classmethod
    def patch(cls, patch: Item, if_match: str | None = None) -> Self:
        """A write that fails unless the item exists, at that version, and the patch's ``condition`` holds.

        ``patch`` has the item's ``id``, ``operations``, and ``condition`` where there is one.
        """
        return cls("patch", patch, if_match)

    def operation(self) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
        """The SDK's form, made again for each attempt: the SDK removes ``if_match_etag`` from the dict that it gets."""
        condition = {} if self.if_match is None else {"if_match_etag": self.if_match}
        match self.kind:
            case "create" | "upsert":
                return self.kind, (self.item,), condition
            case "replace":
                return self.kind, (self.item["id"], self.item), condition
            case "delete":
                return self.kind, (self.item["id"],), condition
            case "patch":
                if "condition" in self.item:
                    condition["filter_predicate"] = self.item["condition"]
                return self.kind, (self.item["id"], self.item["operations"]), condition


def size_in_bytes(writes: Sequence[Write]) -> int:
    """The approximate size of the batch on the wire."""
    return sum(len(json.dumps(write.item)) for write in writes)


UNREADABLE = (KeyError, TypeError, ValueError)
"""The errors that the SDK, and the functions below, raise for such a body. Without an answer before, it is a bug."""

NO_ANSWER = Failure(Kind.PASSING, "an answer that cannot be read")


def etags(results: Sequence[dict[str, Any]], writes: Sequence[Write]) -> list[str]:
    """The new ETag of each write of a batch ("" for a delete). Raises ValueError."""
    return [str(result.get("eTag", "")) for result, _ in zip(results, writes, strict=True)]


def age(item: dict[str, Any], date: str | None) -> float:
    """The seconds from an item's last write to the answer of this date, both by the service's clock. Raises KeyError.

    Without a readable date, which a proxy may have removed, the time of the answer is this machine's.
    """
    try:
        answered_at = parsedate_to_datetime(date or "").timestamp()
    except ValueError:
        answered_at = utc_now().timestamp()
    return float(answered_at - item["_ts"])


def has_duplicates(items: Iterable[Item]) -> bool:
    """Whether one document is there twice, as azure-cosmos 4.17 returns it where a query meets a split partition.

    It makes its list of partitions anew and then adds those that it had still to ask once more
    (``_configure_partition_ranges`` in ``multi_execution_aggregator.py``). The next query knows the new ones.
    """
    ids = [item["_rid"] for item in items if "_rid" in item]
    return len(ids) > len(set(ids))


def beyond(path: str, *, down: bool) -> str:
    """Returns the condition for what follows the item of ``@key`` and ``@after``: its first half is for the index."""
    sign = "<" if down else ">"
    return f"{path} {sign}= @key AND ({path} {sign} @key OR c.id {sign} @after)"


def order_by(*paths: str, down: bool) -> str:
    """All in one direction, so that one ascending index serves both."""
    return f"ORDER BY {', '.join(f'{path} DESC' if down else path for path in paths)}"


def of_fields(fields: Sequence[str], query: str) -> str:
    """A query for whole items, for these fields of them alone."""
    return query.replace("*", ", ".join(f"c.{name}" for name in fields), 1)


def refused_batch(paths: PartitionKeyPaths) -> tuple[Key, list[Write]]:
    """A batch that changes nothing, with its key: a store refuses it as stale, unless it ignores If-Match in batches.

    Such a store deletes its item again; one that keeps what a refused batch wrote lets the item expire.
    """
    name = f"preflight-{new_id()}"
    key = paths.made_up(name)
    item = {"id": name, "ttl": _TOKEN_TTL_SECONDS, **paths.fields(key)}
    return key, [Write.create(item), Write.replace(item, _NO_VERSION), Write.delete(name)]


DEADLINE_SECONDS = 4.0
"""The longest that one call may take, with the SDK's own retries. A request makes few calls and answers within 10 s."""

_SPLITS_IN_A_CALL = 2
"""A split takes the service minutes, and a query hardly meets one."""

IGNORES_CONDITIONS = "the store ignores If-Match in a batch: a change overwrites another one unseen"
_NO_VERSION = '"no-version"'
_TOKEN_TTL_SECONDS = 60
_ABOUT_THE_STATE = {Kind.CONFLICT, Kind.STALE, Kind.MISSING}
"""Refusals that say what is stored, so that the caller reads next."""


class StoreFailed(Exception):
    """A call of the store failed; ``failure`` says how. This error never leaves ``cosmos_outbox.cosmos``."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.detail)
        self.failure = failure


@contextmanager
def reported(error_of: Callable[[Failure], Exception] = Failure.error) -> Iterator[None]:
    """Turns a failure of the store inside the block into an error for the caller."""
    try:
        yield
    except StoreFailed as error:
        raise error_of(error.failure) from error


class Container:
    """One container of one account; shared by all requests of the process."""

    def __init__(
        self,
        client: CosmosClient,
        database: str,
        container: str,
        *,
        paths: PartitionKeyPaths = PARTITION_KEY,
    ) -> None:
        self._client = client
        self.paths = paths
        self._proxy: ContainerProxy = client.get_database_client(database).get_container_client(container)
        self._name = f"container {container} of database {database}"
        self._ready = False
        self._heeds_conditions = False
        self._set_up = asyncio.Lock()
        self._sessions = SessionTokens()
        self.renewals = 0
        """The number of renewed session tokens since the process began: each costs a write that is refused."""

    async def read(self, item_id: str, partition_key: Key, *, consistent: bool = False) -> Item | None:
        """The item, or None when this read sees no item, which is no proof: a replica may lag. Raises StoreFailed.

        ``consistent``: after :meth:`renew_token`, so that no earlier commit is missed, and None is proof.
        """
        if consistent:
            await self.renew_token(partition_key)
        found = await self.read_with_age(item_id, partition_key)
        return None if found is None else found[0]

    async def read_with_age(self, item_id: str, partition_key: Key) -> tuple[Item, float] | None:
        """As :meth:`read`, with the seconds from the item's last write to this answer, both by the service's clock."""
        token = await self._token(partition_key)
        try:
            async with self._calls(partition_key, token) as proxy:
                item = await proxy.read_item(item_id, partition_key, session_token=token)
        except StoreFailed as error:
            if error.failure.kind is Kind.MISSING:
                self._saw(partition_key, error.failure.session_token)
                return None
            raise
        try:
            headers = item.get_response_headers()
            # The SDK's own is forgotten for all keys where one meets a replica that is behind.
            self._saw(partition_key, headers.get("x-ms-session-token"))
            return dict(item), age(item, headers.get("Date"))
        except UNREADABLE as error:
            raise StoreFailed(NO_ANSWER) from error

    async def execute(self, partition_key: Key, writes: Sequence[Write]) -> list[str]:
        """Store all writes in one transaction. Returns the new ETags in order ("" for a delete).

        Reads that follow see at least the state of the answer, also when the answer is a refusal.

        Raises:
            StoreFailed: the call failed; ``failure.answer_lost`` says whether the writes may be stored all the same.
        """
        try:
            return (await self._execute(partition_key, writes))[0]
        except StoreFailed as error:
            refusal = error.failure
            if refusal.session_token is None and refusal.kind in _ABOUT_THE_STATE and not _is_renewal(writes):
                try:
                    await self.renew_token(partition_key)
                except (
                    StoreFailed
                ) as failed:  # it does not hide that the answer to the refused batch was lost before
                    lost = refusal.answer_lost or failed.failure.answer_lost
                    raise StoreFailed(replace(failed.failure, answer_lost=lost)) from failed
            raise

    async def _execute(self, partition_key: Key, writes: Sequence[Write]) -> tuple[list[str], str | None]:
        """The ETags, and the session token of the answer."""
        operations = [write.operation() for write in writes]
        with track_attempts() as attempts:
            try:
                async with self._calls() as proxy:
                    results = await proxy.execute_item_batch(operations, partition_key)
                stored = etags(results, writes)
            except StoreFailed as error:
                self._saw(partition_key, error.failure.session_token)
                raise StoreFailed(attempts.outcome(error.failure)) from error
            except UNREADABLE as error:
                if not attempts.succeeded:
                    raise
                raise StoreFailed(attempts.outcome(NO_ANSWER)) from error
        token = results.get_response_headers().get("x-ms-session-token")
        self._saw(partition_key, token)
        return stored, token

    async def renew_token(self, partition_key: Key) -> None:
        """Reads of this partition that follow miss no write that was committed before. Raises StoreFailed.

        The token comes from a write that is refused: the replacement of an item that is never there. A store that
        ignores conditions refuses it too. So the item's absence is relied on, not its version: to replace an item that
        is there would destroy it behind such a store. Should the service's refusal carry no token, a document is
        written that expires within a minute.
        """
        self.renewals += 1
        try:
            await self.execute(partition_key, [Write.replace(self._at(NO_ITEM, partition_key), _NO_VERSION)])
        except StoreFailed as error:
            if error.failure.kind not in (Kind.STALE, Kind.MISSING):
                raise
            token = error.failure.session_token
        else:
            raise AssertionError(f"an item was replaced that nothing ever creates: {NO_ITEM}")
        if token is None:
            item = self._at(TOKEN_ID, partition_key) | {"type": NO_ITEM, "ttl": _TOKEN_TTL_SECONDS}
            _, token = await self._execute(partition_key, [Write.upsert(item)])
        if token is None:  # a read would prove nothing
            detail = "no answer has a session token: let the header x-ms-session-token pass every proxy"
            raise StoreFailed(Failure(Kind.BEHIND, detail))

    async def _token(self, partition_key: Key) -> str | None:
        """Returns the session token that a read of this partition goes by. Raises StoreFailed."""
        text = self.paths.text(partition_key)
        if self._sessions.is_doubted(text):
            await self.renew_token(partition_key)
            self._sessions.trust(text)
        return self._sessions.get(text)

    def _saw(self, partition_key: Key, token: str | None) -> None:
        self._sessions.merge(self.paths.text(partition_key), token)

    def seen(self, partition_key: Key) -> str | None:
        """The newest session token of an answer about this partition; None: there was none."""
        return self._sessions.get(self.paths.text(partition_key))

    def _at(self, item_id: str, partition_key: Key) -> Item:
        return {"id": item_id, **self.paths.fields(partition_key)}

    async def page(  # noqa: PLR0913 - a query, and where it goes on
        self,
        query: str,
        parameters: Mapping[str, Any],
        size: int,
        continuation: str | None,
        *,
        partition_key: Key | None = None,
        session_token: str | None = None,
    ) -> tuple[list[Item], str | None]:
        """One page of a query over one or all partitions, and the token of the next page. Raises StoreFailed.

        ``session_token``: of :func:`cosmos_outbox.cosmos.store.consistent_reads.renew_tokens`; each partition is then
        at least as new as it says.
        """
        async with self._queried(query, parameters, size, partition_key, session_token) as found:
            pages = found.by_page(continuation)
            try:
                page = await anext(pages)
            except StopAsyncIteration:
                return [], None
            items = [dict(item) async for item in page]
        # azure.core's pager has the attribute, the pager's declared type has not
        return items, getattr(pages, "continuation_token", None)

    async def pages(
        self,
        query: str,
        parameters: Mapping[str, Any],
        size: int,
        *,
        partition_key: Key | None = None,
        session_token: str | None = None,
    ) -> AsyncIterator[list[Item]]:
        """Yields every page of a query, as :meth:`page` does. Raises StoreFailed."""
        token: str | None = None
        while True:
            items, token = await self.page(
                query, parameters, size, token, partition_key=partition_key, session_token=session_token
            )
            yield items
            if token is None:
                return

    async def first(
        self, query: str, parameters: Mapping[str, Any], most: int, *, partition_key: Key | None = None
    ) -> list[Item]:
        """The first items of a query over one or all partitions; fewer than ``most``: there are no more.

        A page of the store does not show that: it may end before it is full. Raises StoreFailed.
        """
        for _ in range(_SPLITS_IN_A_CALL + 1):
            first = await self._first(query, parameters, most, partition_key)
            if not has_duplicates(first):
                return first
        raise StoreFailed(
            Failure(Kind.PASSING, "partitions are split faster than they can be read: try again")
        )

    async def _first(
        self, query: str, parameters: Mapping[str, Any], most: int, partition_key: Key | None
    ) -> list[Item]:
        first: list[Item] = []
        async with self._queried(query, parameters, most, partition_key) as found:
            async for item in found:
                first.append(dict(item))
                if len(first) == most:
                    break
        return first

    @asynccontextmanager
    async def _queried(
        self,
        query: str,
        parameters: Mapping[str, Any],
        size: int | None,
        partition_key: Key | None,
        session_token: str | None = None,
    ) -> AsyncIterator[AsyncItemPaged[dict[str, Any]]]:
        token = session_token if partition_key is None else await self._token(partition_key)
        where: dict[str, Any] = {} if partition_key is None else {"partition_key": partition_key}
        named = [{"name": name, "value": value} for name, value in parameters.items()]
        async with self._calls(partition_key, token) as proxy:
            yield proxy.query_items(
                query, parameters=named, max_item_count=size, session_token=token, **where
            )

    async def count(self, query: str, parameters: Mapping[str, Any], *, partition_key: Key) -> int:
        """The sum of ``count`` over the pages of a query of one partition. Raises StoreFailed."""
        async with self._queried(query, parameters, None, partition_key) as found:
            return sum([each["count"] async for each in found])

    async def check(self) -> None:
        """Return if the container answers, of a right account. Raises Unavailable, Throttled or Misconfigured."""
        with reported():
            async with self._calls() as proxy:
                await proxy.read()
                account = await read_account(self._client.client_connection)
        account.check()
        await self._check_conditions()

    async def _check_conditions(self) -> None:
        """Check, once per process, that a batch heeds If-Match. Raises as :meth:`check` does."""
        if self._heeds_conditions:
            return
        try:
            await self.execute(*refused_batch(self.paths))
        except StoreFailed as error:
            if error.failure.kind is not Kind.STALE:
                raise error.failure.error() from error
            self._heeds_conditions = True
        else:
            raise Misconfigured(f"{IGNORES_CONDITIONS}: use an Azure account, or devstack")

    @asynccontextmanager
    async def _calls(
        self, partition_key: Key | None = None, token: str | None = None
    ) -> AsyncIterator[ContainerProxy]:
        """One call of the SDK, with the session token that it carries."""
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                if not self._ready:
                    await self._connect()
                yield self._proxy
        except SDK_ERRORS as error:
            failure = replace(classify(error), container=self._name)
        else:
            return
        if failure.kind is Kind.BEHIND and partition_key is not None:
            self._sessions.doubt(self.paths.text(partition_key), token)
        raise StoreFailed(failure)

    async def _connect(self) -> None:
        """Read account and container once, so that "no such container" is not mistaken for "no such item"."""
        async with self._set_up:
            if self._ready:
                return
            await self._client.__aenter__()
            await self._proxy.read()
            self._ready = True


def _is_renewal(writes: Sequence[Write]) -> bool:
    return writes[0].if_match == _NO_VERSION
