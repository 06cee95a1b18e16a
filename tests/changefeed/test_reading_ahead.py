"""The next page is read while this one is handled, and nothing is skipped or kept from it that should not be."""

import asyncio
from dataclasses import dataclass, field, replace

import pytest

from cosmos_changefeed import Changes, Handler, TwoSteps
from cosmos_changefeed.feed import FeedPage, FeedReader
from devstack.testing import eventually
from tests.changefeed.in_memory import InMemory
from tests.changefeed.support import FAST, Recorder

ONE_BY_ONE = replace(FAST, max_items=1)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The ids of each page that was read, in the order in which the reads ended."""
    pages: list[list[str]] = []
    reading = FeedReader.read

    async def noted(*arguments: object, **where: object) -> FeedPage:
        page = await reading(*arguments, **where)  # type: ignore[arg-type]  # passed on as they came
        pages.append([item["id"] for item in page.items])
        return page

    monkeypatch.setattr(FeedReader, "read", noted)
    return pages


async def test_a_page_is_read_while_the_one_before_is_handled(
    memory: InMemory, read: list[list[str]]
) -> None:
    recorder = Recorder()
    recorder.go_on.clear()
    for sequence in range(3):
        await memory.write("a", sequence)

    async with recorder.processor(memory, options=ONE_BY_ONE):
        await eventually(lambda: ["a-1"] in read)
        assert [ids for ids, _ in recorder.batches] == [["a-0"]]
        assert ["a-2"] not in read, "one page ahead, and no further"
        recorder.go_on.set()
        await eventually(lambda: recorder.ids == ["a-0", "a-1", "a-2"])

    assert read.count(["a-1"]) == 1


async def test_after_a_failure_the_page_that_was_read_ahead_is_forgotten(
    memory: InMemory, read: list[list[str]]
) -> None:
    recorder = Recorder(failures=2)
    for sequence in range(2):
        await memory.write("a", sequence)

    async with recorder.processor(memory, options=ONE_BY_ONE):
        await eventually(lambda: recorder.ids == ["a-0", "a-1"])

    assert [ids for ids, _ in recorder.batches] == [["a-0"], ["a-0"], ["a-0"], ["a-1"]]


async def test_a_change_written_while_a_page_is_handled_waits_for_no_poll(
    memory: InMemory, read: list[list[str]]
) -> None:
    """An empty page that was read ahead says nothing of the time since."""
    recorder = Recorder()
    recorder.go_on.clear()
    await memory.write("a", 0)

    async with recorder.processor(memory, options=replace(FAST, poll_interval=60)):
        await eventually(lambda: [] in read)
        await memory.write("a", 1)
        recorder.go_on.set()
        await eventually(lambda: recorder.ids == ["a-0", "a-1"])


async def test_a_stop_ends_a_read_that_is_under_way(memory: InMemory) -> None:
    recorder = Recorder()
    recorder.go_on.clear()
    await memory.write("a", 0)
    await memory.write("a", 1)
    processor = recorder.processor(memory, options=ONE_BY_ONE)
    async with processor:
        await eventually(lambda: recorder.batches)
        await processor.stop(drain=False)
    assert recorder.cancelled == 1


@dataclass
class Preparer:
    """A first step that notes what it gets, and can fail, or stand still at one item."""

    handler: Handler
    failures: int = 0
    stands_at: str | None = None
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    batches: list[list[str]] = field(default_factory=list)
    cancelled: int = 0

    @property
    def steps(self) -> TwoSteps[Changes]:
        return TwoSteps(self._prepare, self.handler)

    async def _prepare(self, changes: Changes) -> Changes:
        ids = [item["id"] for item in changes]
        self.batches.append(ids)
        if self.stands_at in ids:
            try:
                await self.go_on.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        if self.failures:
            self.failures -= 1
            raise ValueError("it cannot be prepared")
        return changes


async def test_a_page_is_prepared_while_the_one_before_it_is_handled(memory: InMemory) -> None:
    recorder = Recorder()
    recorder.go_on.clear()
    preparer = Preparer(recorder)
    for sequence in range(3):
        await memory.write("a", sequence)

    async with recorder.processor(memory, options=ONE_BY_ONE, handler=preparer.steps):
        await eventually(lambda: preparer.batches == [["a-0"], ["a-1"]])
        assert [ids for ids, _ in recorder.batches] == [["a-0"]]
        recorder.go_on.set()
        await eventually(lambda: recorder.ids == ["a-0", "a-1", "a-2"])

    assert preparer.batches == [["a-0"], ["a-1"], ["a-2"]], "each once, and no empty page"


async def test_a_page_that_could_not_be_prepared_is_retried_and_not_skipped(memory: InMemory) -> None:
    recorder = Recorder()
    preparer = Preparer(recorder, failures=3)
    for sequence in range(2):
        await memory.write("a", sequence)

    async with recorder.processor(memory, options=ONE_BY_ONE, handler=preparer.steps):
        await eventually(lambda: recorder.ids == ["a-0", "a-1"])

    assert [str(error) for _, error in recorder.errors] == ["it cannot be prepared"] * 3
    assert preparer.batches == [["a-0"], ["a-0"], ["a-0"], ["a-0"], ["a-1"]]


async def test_a_page_in_preparation_is_dropped_when_the_one_before_fails(memory: InMemory) -> None:
    recorder = Recorder()
    recorder.go_on.clear()
    preparer = Preparer(recorder, stands_at="a-1")
    for sequence in range(2):
        await memory.write("a", sequence)

    async with recorder.processor(memory, options=ONE_BY_ONE, handler=preparer.steps):
        await eventually(lambda: preparer.batches == [["a-0"], ["a-1"]])
        recorder.failures = 1
        recorder.go_on.set()
        await eventually(lambda: preparer.cancelled == 1)
        preparer.go_on.set()
        await eventually(lambda: recorder.ids == ["a-0", "a-1"])

    assert [ids for ids, _ in recorder.batches] == [["a-0"], ["a-0"], ["a-1"]]


async def test_a_stop_ends_a_preparation_and_lets_the_running_handler_end(memory: InMemory) -> None:
    recorder = Recorder()
    recorder.go_on.clear()
    preparer = Preparer(recorder, stands_at="a-1")
    for sequence in range(2):
        await memory.write("a", sequence)

    processor = recorder.processor(memory, options=ONE_BY_ONE, handler=preparer.steps)
    await processor.start()
    await eventually(lambda: preparer.batches == [["a-0"], ["a-1"]])
    stopping = asyncio.create_task(processor.stop())
    recorder.go_on.set()
    await stopping

    assert recorder.ids == ["a-0"]
    assert preparer.cancelled == 1


async def test_a_lost_lease_ends_a_preparation_that_is_waited_for(memory: InMemory) -> None:
    recorder = Recorder()
    preparer = Preparer(recorder, stands_at="a-1")
    for sequence in range(2):
        await memory.write("a", sequence)

    async with recorder.processor(memory, options=ONE_BY_ONE, handler=preparer.steps):
        await eventually(lambda: recorder.ids == ["a-0"])
        await eventually(lambda: preparer.batches == [["a-0"], ["a-1"]])
        await memory.delete_leases()
        await eventually(lambda: preparer.cancelled == 1)
