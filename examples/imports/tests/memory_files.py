"""Files in a dict, which may be away."""

from cosmos_outbox.errors import Unavailable
from examples.imports.files import FileGone


class MemoryFiles:
    """See :class:`examples.imports.files.Files`."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.away = 0
        """How many of the next reads fail."""

    async def put(self, name: str, content: bytes) -> None:
        self.kept.setdefault(name, content)

    async def get(self, name: str) -> bytes:
        if self.away:
            self.away -= 1
            raise Unavailable("Blob Storage is away")
        if name not in self.kept:
            raise FileGone("the file is not there any more")
        return self.kept[name]
