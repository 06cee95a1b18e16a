"""One container in memory: a transaction is stored whole or not at all, and each document has a version.

The library's own adapters run over it, so what they check before they store is checked here too, and what is read was
written as JSON. It cannot prove what only a store can: a crash between two writes, replicas that lag, the limits of the
real service, the order of its change feed. ``tests/contract`` runs over this container and over a real one.
"""

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NoReturn

from cosmos_outbox.cosmos.aggregates.deadlines import LIST_DUE
from cosmos_outbox.cosmos.aggregates.documents import DUE
from cosmos_outbox.cosmos.store.container import Container, PageQuery, StoreFailed, Write
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.cosmos.store.partition_key import PARTITION_KEY, Item, Key, PartitionKeyPaths
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.testing.faults import Faults

_NO_TOKEN = "a token that no page has given"  # noqa: S105 - it is no secret


class NotInMemory(NotImplementedError):
    """What was asked for is not there in memory: a test that needs it runs on a local Azure (LocalAzure).

    Example::

        async with in_memory(service):
            with pytest.raises(NotInMemory):
                await service().outbox.observer.measure()
    """


@dataclass
class Documents:
    """The documents of one container, by partition and id."""

    paths: PartitionKeyPaths = PARTITION_KEY
    clock: Callable[[], datetime] = utc_now
    written: list[Item] = field(default_factory=list)
    """Each version of each document, in the order of the writes."""
    _stored: dict[str, dict[str, Item]] = field(default_factory=dict)
    _versions: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    def read(self, item_id: str, partition_key: Key) -> Item | None:
        """A copy of the document; None: there is none, or it has expired."""
        found = self._partition(partition_key).get(item_id)
        return None if found is None or self._has_expired(found) else _copy(found)

    def all(self) -> Iterator[Item]:
        """A copy of each document that has not expired, as they were first stored."""
        for partition in self._stored.values():
            for item in partition.values():
                if not self._has_expired(item):
                    yield _copy(item)

    def execute(self, partition_key: Key, writes: Sequence[Write]) -> list[str]:
        """Store all of it, or nothing. Returns the new versions ("" for a delete). Raises StoreFailed."""
        partition = {
            item_id: item
            for item_id, item in self._partition(partition_key).items()
            if not self._has_expired(item)
        }
        written: list[Item] = []
        versions: list[str] = []
        for index, write in enumerate(writes):
            item_id = write.item["id"]
            _check(write, partition.get(item_id), index)
            if write.kind == "delete":
                del partition[item_id]
                versions.append("")
                continue
            number = next(self._versions)
            stored = _copy(write.item) | {
                "_etag": f'"{number}"', "_ts": int(self.clock().timestamp()), "_lsn": number
            }  # fmt: skip
            partition[item_id] = stored
            written.append(stored)
            versions.append(stored["_etag"])
        self._stored[self.paths.text(partition_key)] = partition
        self.written += written
        return versions

    def age(self, item: Item) -> float:
        """The seconds since a document was written."""
        return self.clock().timestamp() - float(item["_ts"])

    def _partition(self, partition_key: Key) -> dict[str, Item]:
        return self._stored.get(self.paths.text(partition_key), {})

    def _has_expired(self, item: Item) -> bool:
        ttl = float(item.get("ttl", -1))
        return ttl > 0 and self.age(item) >= ttl


def _check(write: Write, found: Item | None, index: int) -> None:
    """Raise StoreFailed for a write that the store refuses."""
    kind, ttl = None, write.item.get("ttl", -1)
    if type(ttl) is not int or ttl == 0 or ttl < -1:
        raise StoreFailed(Failure(Kind.INVALID, f"400, the ttl is {ttl!r}", index=index))
    if write.kind == "create" and found is not None:
        kind = Kind.CONFLICT
    elif write.kind in ("replace", "delete") and found is None:
        kind = Kind.MISSING
    elif write.if_match is not None and found is not None and found["_etag"] != write.if_match:
        kind = Kind.STALE
    if kind is not None:
        raise StoreFailed(Failure(kind, kind.value, index=index))


def _copy(item: Mapping[str, Any]) -> Item:
    copy: Item = json.loads(json.dumps(item))
    return copy


class MemoryContainer(Container):
    """A container over documents in memory. See :class:`cosmos_outbox.cosmos.store.container.Container`.

    ``faults``: what its calls meet. They raise what a caller of the library would get after all attempts, at once.
    """

    def __init__(self, documents: Documents | None = None, faults: Faults | None = None) -> None:
        self.documents = documents or Documents()
        self.paths = self.documents.paths
        self.fences = 0
        self._faults = faults or Faults()

    async def read_with_age(self, item_id: str, partition_key: Key) -> tuple[Item, float] | None:
        """The document, and its age."""
        self._faults.meet_read()
        item = self.documents.read(item_id, partition_key)
        return None if item is None else (item, self.documents.age(item))

    async def create(self, item: Item) -> None:
        """Store a document whose id no other has. Raises StoreFailed."""
        key = self.paths.of(item)
        assert key is not None, "an item that is stored has a partition key"
        await self.execute(key, [Write.create(item)])

    async def execute(self, partition_key: Key, writes: Sequence[Write]) -> list[str]:
        """Store all writes, or none. Raises StoreFailed."""
        return self._faults.meet_write(lambda: self.documents.execute(partition_key, writes))

    async def fence(self, partition_key: Key) -> None:
        """Each read is as new as the last write."""

    def seen(self, partition_key: Key) -> str | None:
        """There are no session tokens."""
        return None

    async def page(
        self,
        query: str,
        parameters: Mapping[str, Any],
        size: int,
        continuation: str | None,
        *,
        partition_key: Key | None = None,
    ) -> tuple[list[Item], str | None]:
        """The documents that are due. Raises StoreFailed, NotInMemory for another query."""
        if query != LIST_DUE:
            _refuse(query)
        self._faults.meet_read()
        if continuation is not None and not continuation.isdecimal():
            raise StoreFailed(Failure(Kind.INVALID, _NO_TOKEN))
        times = ((item, item.get(DUE)) for item in self.documents.all())
        found = [item for item, time in times if isinstance(time, str) and time <= parameters["@now"]]
        start = int(continuation or 0)
        end = start + size
        return found[start:end], str(end) if end < len(found) else None

    async def page_behind(self, *_: Any, **__: Any) -> NoReturn:
        """Raises NotInMemory."""
        _refuse("the events of all partitions")

    async def select(self, query: PageQuery, most: int, key: Key | None = None) -> list[Item]:
        """The first aggregates of a list, or events of a partition."""
        self._faults.meet_read()
        items = (each for each in self.documents.all() if key is None or self.paths.of(each) == key)
        return query.among(items)[:most]

    async def first(self, query: str, *_: Any, **__: Any) -> NoReturn:
        """Raises NotInMemory."""
        _refuse(query)

    async def count(self, query: str, *_: Any, **__: Any) -> NoReturn:
        """Raises NotInMemory."""
        _refuse(query)

    async def check(self) -> None:
        """Raises what the next call would."""
        self._faults.meet_read()


def _refuse(what: str) -> NoReturn:
    raise NotInMemory(
        f"{what}: it is not there in memory. Test it on a local Azure: cosmos_outbox.testing.LocalAzure"
    )
