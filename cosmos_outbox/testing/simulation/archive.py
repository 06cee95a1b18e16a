"""The archive of a simulated service: what was written stays, and an answer may be lost, after the write too."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from cosmos_outbox.outbox.archive import Blob
from cosmos_outbox.outbox.errors import PreconditionFailed, Unavailable

_AWAY = "the archive could not be used: try again later"


@dataclass
class SimulatedArchive:
    """See :class:`cosmos_outbox.outbox.archive.Archive`."""

    chance: random.Random = field(default_factory=random.Random)
    fails: float = 0.0
    """The share of writes whose answer is lost; half of these are written."""
    slow: float = 0.0
    """So many seconds a request takes at most."""
    contents: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    """By name, with a version."""

    async def arrive(self) -> None:
        """A request is on its way."""
        await asyncio.sleep(self.chance.uniform(0, self.slow))

    async def claim(self, name: str) -> str | None:
        """The version of the empty blob of that name; None: it has content. Raises Unavailable."""
        await self.arrive()
        with self._answered():
            body, version = self.contents.setdefault(name, (b"", 1))
        return None if body else str(version)

    async def read(self, name: str, but: str = "") -> tuple[bytes, str] | None:
        """A blob's content and version, unless it is that version."""
        await self.arrive()
        body, version = self.contents.get(name, (b"", 0))
        return None if not version or str(version) == but else (body, str(version))

    async def names(self, prefix: str) -> list[str]:
        """Those that begin so."""
        await self.arrive()
        return sorted(name for name in self.contents if name.startswith(prefix))

    async def blobs(self) -> AsyncIterator[tuple[Blob, str]]:
        """All, each with its version."""
        await self.arrive()
        for name in list(self.contents):
            await self.arrive()
            body, version = self.contents[name]
            yield Blob(name, body), str(version)

    async def replace(self, blob: Blob, version: str) -> None:
        """Raises PreconditionFailed, Unavailable."""
        await self.arrive()
        if str(self.contents.get(blob.name, (b"", 0))[1]) != version:
            raise PreconditionFailed(f"{blob.name} was changed meanwhile: read it again")
        with self._answered():
            self.contents[blob.name] = blob.body, int(version) + 1

    @contextmanager
    def _answered(self) -> Iterator[None]:
        """Whether a write is done, and its answer arrives."""
        lost = self.chance.random() < self.fails
        if lost and self.chance.random() < 0.5:
            raise Unavailable(_AWAY)
        yield
        if lost:
            raise Unavailable(_AWAY)
