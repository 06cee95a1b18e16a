"""A task in memory: what each attempt may come to, and what comes twice, late or from the dead."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest

from cosmos_outbox import Origin
from cosmos_outbox.errors import IdempotencyKeyReused
from cosmos_outbox.testing import InMemory, in_memory
from examples.imports import worker
from examples.imports.accepting import Import, Imports
from examples.imports.jobs import Jobs
from examples.imports.service import service
from examples.imports.task import FIRST_PAUSE, MOST_ATTEMPTS, RUN_FOR, START_WITHIN, ImportTask, task_of
from examples.imports.tests.memory_files import MemoryFiles

ORIGIN = Origin("request-1")
CSV = b"name,city\nJohn,Tokyo\nJane,Oslo\n"


@pytest.fixture
async def memory() -> AsyncIterator[InMemory]:
    async with in_memory(service) as made:
        yield made


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def jobs(memory: InMemory, files: MemoryFiles) -> Jobs:
    return Jobs(memory.wired.aggregates, files, memory.clock)


def imports(files: MemoryFiles) -> Imports:
    return Imports(service().aggregates, files)


async def accepted(files: MemoryFiles, content: bytes = CSV) -> UUID:
    return (await imports(files).accept("people.csv", content, ORIGIN)).file.state.id


async def now(file_id: UUID) -> Import:
    return await imports(MemoryFiles()).find(file_id, ORIGIN, newest=True)


def actions(memory: InMemory) -> list[str]:
    return [event.action for event in memory.events]


async def test_a_file_is_read_once_however_often_the_message_comes(
    memory: InMemory, files: MemoryFiles, jobs: Jobs
) -> None:
    file_id = await accepted(files)
    for _ in range(3):
        await jobs.run(file_id, ORIGIN)
    done = (await now(file_id)).document
    assert (done["status"], done["rows"], done["attempts"], done["lastError"]) == ("SUCCEEDED", 2, 1, None)
    assert actions(memory) == ["FileUploaded", "TaskCreated", "TaskStarted", "TaskSucceeded", "FileImported"]


async def test_a_failing_job_is_retried_with_growing_pauses_and_then_given_up(
    memory: InMemory, files: MemoryFiles, jobs: Jobs
) -> None:
    file_id = await accepted(files)
    files.away = MOST_ATTEMPTS
    pauses: list[float] = []
    for attempt in range(1, MOST_ATTEMPTS):
        await jobs.run(file_id, ORIGIN)
        state = (await now(file_id)).task.state
        assert (state.status, state.attempts, state.last_error) == ("PENDING", attempt, "Unavailable")
        await jobs.run(file_id, ORIGIN)
        assert (await now(file_id)).task.state.attempts == attempt, "nobody may begin during the pause"
        assert state.due_at is not None
        pauses.append((state.due_at - memory.clock()).total_seconds())
        memory.clock.pass_by(seconds=pauses[-1] + 1)
        await memory.upkeep()
    await jobs.run(file_id, ORIGIN)
    failed = (await now(file_id)).document
    assert (failed["status"], failed["attempts"], failed["rows"]) == ("FAILED", MOST_ATTEMPTS, None)
    first = FIRST_PAUSE.total_seconds()
    assert pauses == pytest.approx([first, 2 * first, 4 * first, 8 * first], abs=2)
    expected = ["TaskStarted", "TaskPostponed", "TaskReady"] * (MOST_ATTEMPTS - 1)
    assert actions(memory)[2:] == [*expected, "TaskStarted", "TaskFailed"]


async def test_a_file_that_nobody_can_read_is_not_tried_again(
    memory: InMemory, files: MemoryFiles, jobs: Jobs
) -> None:
    for content, said in (
        (b"a,b\n1,2,3\n", "line 2 has 3 columns, and the first has 2"),
        (b"\xff\xfe", "the file is no CSV in UTF-8: UnicodeDecodeError"),
    ):
        file_id = await accepted(files, content)
        await jobs.run(file_id, ORIGIN)
        state = (await now(file_id)).task.state
        assert (state.status, state.attempts, state.last_error) == ("FAILED", 1, said)


async def test_a_dead_workers_job_is_taken_over_and_it_can_no_longer_end_it(
    memory: InMemory, files: MemoryFiles, jobs: Jobs
) -> None:
    file_id = await accepted(files)
    task_id, key = str(task_of(file_id)), str(file_id)
    started = await service().aggregates.change(
        ImportTask, task_id, lambda task: task.start(at=memory.clock()), ORIGIN, partition_key=key
    )
    assert started.aggregate.state.attempts == 1  # and now its worker stands still
    await jobs.run(file_id, ORIGIN)
    assert (await now(file_id)).task.state.status == "RUNNING"
    memory.clock.pass_by(seconds=RUN_FOR.total_seconds() + 1)
    await memory.upkeep()
    assert (await now(file_id)).task.state.last_error == "not done within 600 s"
    memory.clock.pass_by(seconds=FIRST_PAUSE.total_seconds() + 1)
    await memory.upkeep()
    await jobs.run(file_id, ORIGIN)
    assert (await now(file_id)).document["attempts"] == 2
    await jobs.succeed(file_id, 1, 99, ORIGIN)
    assert (await now(file_id)).document["rows"] == 2
    assert actions(memory).count("TaskSucceeded") == 1


async def test_an_upload_that_is_repeated_with_its_key_is_one_import(
    memory: InMemory, files: MemoryFiles, jobs: Jobs
) -> None:
    first = await imports(files).accept("people.csv", CSV, ORIGIN, key="key")
    await jobs.run(first.file.state.id, ORIGIN)
    again = await imports(files).accept("people.csv", CSV, ORIGIN, key="key")
    assert (again.file.state.id, again.document["status"]) == (first.file.state.id, "SUCCEEDED")
    with pytest.raises(IdempotencyKeyReused):
        await imports(files).accept("people.csv", b"other", ORIGIN, key="key")
    assert actions(memory).count("FileUploaded") == 1
    assert files.kept[first.file.blob] == CSV


async def test_a_message_that_is_lost_is_made_up_for_however_often(
    memory: InMemory, files: MemoryFiles, jobs: Jobs
) -> None:
    file_id = await accepted(files)
    for expected in (["TaskCreated"], ["TaskReady"], ["TaskReady", "TaskReady"]):
        assert actions(memory)[-len(expected) :] == expected
        memory.clock.pass_by(seconds=START_WITHIN.total_seconds() + 1)
        await memory.upkeep()
    await jobs.run(file_id, ORIGIN)
    done = (await now(file_id)).document
    assert (done["status"], done["attempts"]) == ("SUCCEEDED", 1)


async def test_a_task_that_is_done_is_never_due(memory: InMemory, files: MemoryFiles, jobs: Jobs) -> None:
    file_id = await accepted(files)
    await jobs.run(file_id, ORIGIN)
    assert (await now(file_id)).task.due is None
    memory.clock.pass_by(seconds=timedelta(days=1).total_seconds())
    await memory.upkeep()
    assert actions(memory)[-2:] == ["TaskSucceeded", "FileImported"]


def test_a_job_ends_before_the_hosts_function_timeout() -> None:
    host = json.loads((Path(__file__).parents[1] / "host.json").read_text())
    hours, minutes, seconds = map(int, host["functionTimeout"].split(":"))
    assert timedelta(hours=hours, minutes=minutes, seconds=seconds) >= RUN_FOR + timedelta(minutes=1)


async def test_whatever_the_queue_answers_it_is_asked_again(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, answers = asyncio.Event(), iter([SyntaxError("half of an answer"), OSError("away")])

    class Queue(AbstractAsyncContextManager["Queue"]):
        async def __aexit__(self, *_: object) -> None: ...

        async def receive_message(self, **_: object) -> None:
            if error := next(answers, None):
                raise error
            stop.set()

    monkeypatch.setattr(worker, "_queue", lambda *_: Queue())
    monkeypatch.setattr(worker, "REST_SECONDS", 0.01)
    async with asyncio.timeout(10):
        await worker.work(jobs, stop, {})
    assert stop.is_set()
