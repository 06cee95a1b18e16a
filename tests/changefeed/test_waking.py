"""A processor that is woken looks at once; without a wake it waits for the poll, and nothing is lost."""

import asyncio
import uuid
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from cosmos_changefeed import EpkRange, effective_key
from cosmos_changefeed.feed import FeedPage
from devstack.testing import eventually
from tests.changefeed.in_memory import InMemory
from tests.changefeed.support import FAST, Recorder

SELDOM = replace(
    FAST, poll_interval=10**5, acquire_interval=10**5, expiration_interval=10**6, renew_interval=10**5
)
"""A poll that no test lives to see, though its time is virtual."""


async def test_a_change_is_delivered_at_once_when_the_processor_is_woken(memory: InMemory) -> None:
    recorder = Recorder()
    await memory.write("a", 0)
    async with recorder.processor(memory, options=SELDOM) as processor:
        await eventually(lambda: recorder.ids == ["a-0"])
        for sequence in range(1, 6):
            await memory.write("a", sequence)
            processor.wake()
            await eventually(partial(recorder.has, sequence + 1))
    assert recorder.ids == [f"a-{sequence}" for sequence in range(6)]
    assert recorder.complaints == []


async def test_a_wake_while_a_batch_is_handled_is_not_lost(memory: InMemory) -> None:
    recorder = Recorder()
    async with recorder.processor(memory, options=SELDOM) as processor:
        await eventually(lambda: processor.owned_leases)
        recorder.go_on.clear()
        await memory.write("a", 0)
        processor.wake()
        await eventually(lambda: recorder.batches)
        await memory.write("a", 1)
        processor.wake()
        recorder.go_on.set()
        await eventually(lambda: recorder.ids == ["a-0", "a-1"])


async def test_many_wakes_are_few_reads(memory: InMemory) -> None:
    recorder = Recorder()
    async with recorder.processor(memory, options=SELDOM) as processor:
        await eventually(lambda: processor.owned_leases)
        [worker] = processor._workers.values()
        reads, read = 0, worker._shared.reader.read

        async def counted(*args: object, **named: object) -> object:
            nonlocal reads
            reads += 1
            return await read(*args, **named)  # type: ignore[arg-type]

        worker._shared.reader.read = counted  # type: ignore[method-assign,assignment]
        for _ in range(1000):
            processor.wake()
        await eventually(lambda: reads)
        await memory.write("a", 0)
        processor.wake()
        await eventually(lambda: recorder.ids == ["a-0"])
        await asyncio.sleep(0)
    assert reads <= 4, "one or two for the thousand, and those of the item"


SPLIT = 8
of_many_partitions = pytest.mark.parametrize("memory", [SPLIT], indirect=True)


@of_many_partitions
async def test_a_commit_costs_reads_of_the_lease_that_has_its_key_alone(memory: InMemory) -> None:
    recorder = Recorder()
    async with recorder.processor(memory, options=SELDOM) as processor:
        await eventually(lambda: len(processor.owned_leases) == SPLIT)
        reads = Counter[str]()
        reader = next(iter(processor._workers.values()))._shared.reader
        read = reader.read

        async def counted(feed_range: EpkRange, **named: Any) -> FeedPage:
            reads[feed_range.min] += 1
            return await read(feed_range, **named)

        await eventually(lambda: all(worker.position for worker in processor._workers.values()))
        reader.read = counted  # type: ignore[method-assign]
        keys = [uuid.uuid4().hex for _ in range(5)]
        for number, key in enumerate(keys):
            await memory.write(key, 0)
            processor.wake(key)
            await eventually(partial(recorder.has, number + 1))
            await eventually(lambda: not any(worker._handling for worker in processor._workers.values()))
        assert set(recorder.ids) == {f"{key}-0" for key in keys}
        assert reads.total() <= 4 * len(keys), "of each: what it finds, and a look or two for more"
        places = [await effective_key(memory.monitored, key) for key in keys]
        ranges = [worker._feed_range for worker in processor._workers.values()]
        assert set(reads) == {each.min for each in ranges if any(map(each.holds, places))}
        for number in range(3):  # without a key: all of them
            before = reads.total()
            processor.wake()
            await eventually(lambda: reads.total() >= before + SPLIT, what=f"{number}")  # noqa: B023 - awaited here


async def test_waking_a_processor_that_was_not_started_does_nothing(memory: InMemory) -> None:
    Recorder().processor(memory).wake()
