"""The archive of a simulated service: what was written stays, and an answer may be lost, after the write too."""

import asyncio
import random
from collections.abc import AsyncIterator
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
    contents: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    """By name, with a version."""

    async def put(self, blob: Blob) -> None:
        """Store a blob, unless one of its name is there. Raises Unavailable."""
        await asyncio.sleep(self.chance.uniform(0.001, 0.5))
        lost = self.chance.random() < self.fails
        if not lost or self.chance.random() < 0.5:
            self.contents.setdefault(blob.name, (blob.body, 1))
        if lost:
            raise Unavailable(_AWAY)

    async def blobs(self) -> AsyncIterator[tuple[Blob, str]]:
        """All, each with its version."""
        for name, (body, version) in list(self.contents.items()):
            yield Blob(name, body), str(version)

    async def replace(self, blob: Blob, version: str) -> None:
        """Raises PreconditionFailed."""
        if str(self.contents[blob.name][1]) != version:
            raise PreconditionFailed(f"{blob.name} was changed meanwhile")
        self.contents[blob.name] = blob.body, int(version) + 1
