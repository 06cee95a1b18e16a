"""Whatever fails, each file is read once in the end, and its record says what its task says."""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any

from cosmos_outbox import Aggregate, Origin
from examples.imports.accepting import Imports
from examples.imports.file import SourceFile
from examples.imports.jobs import Jobs, count_rows
from examples.imports.service import service
from examples.imports.task import ImportTask, NotTaken
from examples.imports.tests.memory_files import MemoryFiles
from outbox_simulation import simulate

ORIGIN = Origin("request-1")
CSV = b"name\nJohn\n"
FILES = MemoryFiles()


async def upload(luck: Random, at: datetime) -> None:
    await Imports(service().aggregates, FILES).accept(
        "people.csv", CSV, ORIGIN, key=str(luck.random()), at=at
    )


async def work(luck: Random, at: datetime) -> None:
    """A message comes, again perhaps, and a worker runs its task."""
    task = await _any_task(luck)
    if task is not None:
        await Jobs(service().aggregates, FILES, lambda: at, _read).run(task.state.file_id, ORIGIN)


async def stand_still(luck: Random, at: datetime) -> None:
    """A worker begins, and ends after its time, or never: another one may be at work then."""
    task = await _any_task(luck)
    if task is not None:
        key = str(task.state.file_id)
        try:
            begun = await service().aggregates.change(
                ImportTask, task.aggregate_id,
                lambda each: each.start(at=at, run_for=timedelta(seconds=luck.uniform(1, 5))),
                ORIGIN, partition_key=key,
            )  # fmt: skip
        except NotTaken:
            return
        jobs = Jobs(service().aggregates, FILES, lambda: at, _read)
        await asyncio.sleep(luck.uniform(0, 90))
        if luck.random() < 0.5:
            await jobs.run(task.state.file_id, ORIGIN)  # another worker gets its message
        if luck.random() < 0.7:
            await jobs.succeed(task.state.file_id, begun.aggregate.state.attempts, 1, ORIGIN)


async def _any_task(luck: Random) -> ImportTask | None:
    found = (await service().aggregates.page(ImportTask, 50, None, ORIGIN)).items
    return luck.choice(found) if found else None


async def _read(content: bytes) -> int:
    return count_rows(content)


def agree(found: Sequence[Aggregate[Any]]) -> Iterator[str]:
    """What is wrong."""
    tasks = {each.state.file_id: each.state for each in found if isinstance(each, ImportTask)}
    files = [each.state for each in found if isinstance(each, SourceFile)]
    if len(tasks) != len(files):
        yield f"{len(files)} files have {len(tasks)} tasks"
    for file in files:
        task = tasks[file.id]
        if file.rows != task.rows or (task.status == "SUCCEEDED") != (task.rows == 1):
            yield f"file {file.id} has {file.rows} rows, and its task is {task.status} with {task.rows}"
        if file.last_sequence != (1 if file.rows is None else 2):
            yield f"file {file.id} was counted more than once"
        if task.status == "RUNNING" and task.due_at is None:
            yield f"the task of file {file.id} is run by nobody, and nobody will take it up"


def test_whatever_fails_each_file_is_read_once() -> None:
    simulate(service, upload, work, stand_still, stand_still, seeds=10, at_rest=agree)
