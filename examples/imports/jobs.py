"""A message starts an attempt at most; what the attempt came to is stored with the file, in one transaction, once.

Whatever ends a worker between the two, the task's own time begins the next attempt.
"""

import asyncio
import csv
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from cosmos_outbox import Aggregates, Origin
from cosmos_outbox.errors import AggregateNotFound, ConcurrentChange, PreconditionFailed
from examples.imports.file import SourceFile
from examples.imports.files import FileGone, Files
from examples.imports.task import RUN_FOR, TO_RUN, AttemptOver, ImportTask, NotTaken, task_of

_log = logging.getLogger(__name__)
_STORE_ATTEMPTS = 4


class NotReadable(Exception):
    """The file will never be read: no attempt changes that."""


def count_rows(content: bytes) -> int:
    """The job itself: read a CSV with a header. Raises NotReadable."""
    try:
        lines = list(csv.reader(content.decode("utf-8-sig").splitlines(), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise NotReadable(f"the file is no CSV in UTF-8: {type(error).__name__}") from error
    if not lines:
        raise NotReadable("the file is empty: it needs a line with the names of its columns")
    for number, line in enumerate(lines[1:], start=2):
        if len(line) != len(lines[0]):
            raise NotReadable(f"line {number} has {len(line)} columns, and the first has {len(lines[0])}")
    return len(lines) - 1


async def beside_the_loop(content: bytes) -> int:
    """In a thread: requests are served as well."""
    return await asyncio.to_thread(count_rows, content)


@dataclass(frozen=True)
class Jobs:
    """Runs the tasks of uploaded files."""

    aggregates: Aggregates
    files: Files
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    job: Callable[[bytes], Awaitable[int]] = beside_the_loop
    """What is done with a file; returns its rows. Raises NotReadable."""

    async def run_message(self, body: bytes) -> None:
        """Run the task that a message of the queue is about, if it is about one.

        Raises Throttled, Unavailable, ConcurrentChange: the message has to come again.
        """
        event = json.loads(body)
        if event["type"] in TO_RUN:
            origin = Origin(event.get("correlationid", event["id"]), event.get("traceparent"))
            await self.run(UUID(event["data"]["fileId"]), origin)

    async def run(self, file_id: UUID, origin: Origin) -> None:
        """One attempt, if nobody else has it. Raises Throttled, Unavailable, ConcurrentChange."""
        try:
            attempt, blob = await self._start(file_id, origin)
        except (NotTaken, AggregateNotFound) as nothing:
            _log.info("the task of file %s is not run: %s", file_id, nothing)
            return
        try:
            async with asyncio.timeout(RUN_FOR.total_seconds()):
                rows = await self.job(await self.files.get(blob))
        except (NotReadable, FileGone) as never:
            await self._fail(file_id, attempt, str(never), origin, for_ever=True)
        except Exception as error:  # noqa: BLE001 - whatever it was, another attempt may do better
            # Its text may hold a part of the file.
            await self._fail(file_id, attempt, type(error).__name__, origin)
        else:
            await self.succeed(file_id, attempt, rows, origin)

    async def succeed(self, file_id: UUID, attempt: int, rows: int, origin: Origin) -> None:
        """Store what an attempt came to, unless that attempt is over. Raises as :meth:`run`."""

        def change(task: ImportTask, file: SourceFile) -> None:
            task.succeed(attempt, rows, at=self.clock())
            file.imported(rows, at=self.clock())

        await self._end(file_id, change, origin)

    async def _fail(
        self, file_id: UUID, attempt: int, error: str, origin: Origin, *, for_ever: bool = False
    ) -> None:
        def change(task: ImportTask, _: SourceFile) -> None:
            task.fail(attempt, error, at=self.clock(), for_ever=for_ever)

        await self._end(file_id, change, origin)

    async def _start(self, file_id: UUID, origin: Origin) -> tuple[int, str]:
        file = await self.aggregates.read(SourceFile, str(file_id), origin)
        changed = await self.aggregates.change(
            ImportTask,
            str(task_of(file_id)),
            lambda task: task.start(at=self.clock()),
            origin,
            partition_key=str(file_id),
        )
        return changed.aggregate.state.attempts, file.aggregate.blob

    async def _end(
        self, file_id: UUID, change: Callable[[ImportTask, SourceFile], None], origin: Origin
    ) -> None:
        for _ in range(_STORE_ATTEMPTS):
            async with self.aggregates.open_unit_of_work(origin) as work:
                key, task_id = str(file_id), str(task_of(file_id))
                task = await work.get(ImportTask, task_id, partition_key=key, newest=True)
                file = await work.get(SourceFile, key, newest=True)
                try:
                    change(task.aggregate, file.aggregate)
                    await work.commit()
                except AttemptOver as over:
                    _log.warning("file %s: %s; what this worker did is not counted", file_id, over)
                except PreconditionFailed:
                    continue
                return
        raise ConcurrentChange(
            f"others changed the task of file {file_id} at each of {_STORE_ATTEMPTS} attempts"
        )
