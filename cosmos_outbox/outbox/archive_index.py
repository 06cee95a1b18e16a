"""Where an aggregate's events are in the archive: each has an empty blob, made once, whose name says it.

The archive is laid out by day, and a day has as many blobs as pages: who looks for one aggregate would read them all.
An entry is made after its event was archived and before the page counts as done: so what has an entry can be read, and
what has none is not promised. It names nobody: the aggregate is a digest. What an erasing empties stays empty behind
its entry.
"""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.errors import Unavailable

T = TypeVar("T")

INDEX = "of/"
"""What the names of all entries begin with; that of a blob with events begins with its year."""

MOST_BLOBS = 20
"""How many blobs one look reads."""
AT_ONCE = 16
LOOK_SECONDS = 6.0
"""The longest that one look may take: somebody waits for the answer."""

_BLOCK = 200
"""So many sequences are listed together."""

Line = Mapping[str, Any]
Place = tuple[str | None, str | None, str]
"""An aggregate's type and id, and the name of the partition that it is in."""


class Indexed(Protocol):
    """What the index needs of an archive; see :class:`cosmos_outbox.outbox.archive.Archive`."""

    async def claim(self, name: str) -> str | None: ...
    async def read(self, name: str, but: str = "") -> tuple[bytes, str] | None: ...
    async def names(self, prefix: str) -> Sequence[str]:
        """The names that begin so, at most some thousand. Raises Unavailable, Misconfigured."""


@dataclass(frozen=True)
class Looked:
    """What a look at the archive found."""

    lines: Mapping[int, Line]
    """By sequence, those that are there and not erased."""
    down_to: int
    """Below this sequence it did not look."""


def place_of(line: Line) -> Place:
    """Whose event a line of the archive is."""
    return line["aggregateType"], line["aggregateId"], line.get("partition", "")


def digest_of(place: Place) -> str:
    """A name of an aggregate that tells nobody which one it is."""
    return hashlib.sha256(json.dumps(place).encode()).hexdigest()[:32]


def entries_of(blob: str, body: bytes) -> Iterator[str]:
    """The names of the entries of a blob with events."""
    for text in body.splitlines():
        line = json.loads(text)
        if line["sequence"] and "invalid" not in line and line["aggregateId"]:
            yield f"{_block(place_of(line), line['sequence'])}{line['sequence']:015d}/{blob}"


def _block(place: Place, sequence: int) -> str:
    return f"{INDEX}{digest_of(place)}/{sequence // _BLOCK:012d}/"


@dataclass(frozen=True)
class ArchiveIndex:
    """Writes the entries, and reads by them."""

    archive: Indexed

    async def add(self, blob: str, body: bytes) -> None:
        """Make the entries of a blob that is archived; again is no harm. Raises Unavailable, Misconfigured."""
        await _each(self.archive.claim, entries_of(blob, body))

    async def look(self, key: AggregateKey, partition: str, wanted: Iterable[int]) -> Looked:
        """Archived events of an aggregate, the highest sequences first, as far as one look reaches.

        Of a sequence that was archived twice the later counts: an account that was restored numbers anew.
        Raises Unavailable, Misconfigured.
        """
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                return await self._look((key.type, key.id, partition), sorted(wanted, reverse=True))
        except TimeoutError:
            raise Unavailable(
                f"the archive did not answer in {LOOK_SECONDS:.0f} s: try again later"
            ) from None

    async def _look(self, place: Place, wanted: Sequence[int]) -> Looked:
        where = await self._list(place, wanted)
        chosen, down_to = dict[str, None](), 1
        for sequence in wanted:
            if len(chosen) == MOST_BLOBS and where.get(sequence, "") not in {"", *chosen}:
                down_to = sequence + 1
                break
            if sequence in where:
                chosen[where[sequence]] = None
        read = await _each(self.archive.read, chosen)
        held = {blob: _lines(place, one[0] if one else b"") for blob, one in zip(chosen, read, strict=True)}
        looked = [each for each in wanted if each >= down_to and each in where]
        return Looked(
            {each: held[where[each]][each] for each in looked if each in held[where[each]]}, down_to
        )

    async def _list(self, place: Place, wanted: Sequence[int]) -> Mapping[int, str]:
        """The blob of each sequence that has an entry."""
        where = dict[int, str]()
        for block in dict.fromkeys(_block(place, each) for each in wanted):
            for name in sorted(await self.archive.names(block)):
                sequence, _, blob = name.removeprefix(block).partition("/")
                where[int(sequence)] = blob
        return where


def _lines(place: Place, body: bytes) -> Mapping[int, Line]:
    """What a blob has of an aggregate, without what was erased. Most lines are others'."""
    named = json.dumps(place[1]).encode()
    lines = [json.loads(text) for text in body.splitlines() if named in text]
    return {line["sequence"]: line for line in lines if place_of(line) == place and "document" in line}


async def _each(ask: Callable[[str], Awaitable[T]], names: Iterable[str]) -> list[T]:
    places = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> T:
        async with places:
            return await ask(name)

    return await asyncio.gather(*(one(name) for name in names))
