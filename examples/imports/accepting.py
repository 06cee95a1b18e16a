"""An upload is accepted when file, task and the message that starts it are stored: in one transaction, or none is."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4, uuid5

from cosmos_outbox import Aggregates, Origin
from cosmos_outbox.errors import IdempotencyKeyReused, PreconditionFailed
from examples.imports.file import SourceFile, Upload
from examples.imports.files import Files
from examples.imports.task import ImportTask, task_of

_KEYS = UUID("1d3f53a0-0a52-4c1e-9a0b-0e4a5d7f3c11")
"""Where the ids of uploads with a key come from."""


@dataclass(frozen=True)
class Import:
    """What a client sees."""

    file: SourceFile
    task: ImportTask

    @property
    def document(self) -> Mapping[str, Any]:
        """As JSON has it."""
        file, task = self.file.state, self.task.state
        shown: dict[str, Any] = task.model_dump(
            mode="json", by_alias=True, exclude={"id", "file_id", "due_at", "paused"}
        )
        return {"id": str(file.id), "name": file.name, "size": file.size} | shown

    @property
    def is_open(self) -> bool:
        """Whether there is more to come."""
        return self.task.state.status in ("PENDING", "RUNNING")


@dataclass(frozen=True)
class Imports:
    """What a client can do. The object has no state: it serves all requests at once."""

    aggregates: Aggregates
    files: Files

    async def accept(
        self, name: str, content: bytes, origin: Origin, *, key: str | None = None, at: datetime | None = None
    ) -> Import:
        """Store an upload. With a ``key`` a repetition finds the first one.

        Raises:
            IdempotencyKeyReused: the key was used for another file.
            Throttled, Unavailable: nothing is stored, or all: repeat the request with its key.
        """
        at = at or datetime.now(UTC)
        file_id = uuid4() if key is None else uuid5(_KEYS, key)
        upload = Upload(name=name, size=len(content), digest=hashlib.sha256(content).hexdigest())
        file, task = SourceFile.upload(upload, id=file_id, at=at), ImportTask.create(file_id, at=at)
        await self.files.put(file.blob, content)
        async with self.aggregates.open_unit_of_work(origin) as work:
            work.add(file)
            work.add(task)
            try:
                await work.commit()
            except PreconditionFailed:
                return await self._accepted_before(file_id, upload, origin)
        return Import(file, task)

    async def find(self, file_id: UUID, origin: Origin, *, newest: bool = False) -> Import:
        """An upload and how far it is. Raises AggregateNotFound, Throttled, Unavailable."""
        async with self.aggregates.open_unit_of_work(origin) as work:
            key, task_id = str(file_id), str(task_of(file_id))
            file = await work.get(SourceFile, key, newest=newest)
            task = await work.get(ImportTask, task_id, partition_key=key, newest=newest)
        return Import(file.aggregate, task.aggregate)

    async def _accepted_before(self, file_id: UUID, upload: Upload, origin: Origin) -> Import:
        found = await self.find(file_id, origin, newest=True)
        if (found.file.state.digest, found.file.state.name) != (upload.digest, upload.name):
            raise IdempotencyKeyReused("the Idempotency-Key was used before, for another file: use a new one")
        return found
