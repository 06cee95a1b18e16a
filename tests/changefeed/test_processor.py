"""One instance: its deliveries, its checkpoints, and the leases after it has stopped."""

import asyncio
import contextlib
from dataclasses import replace

import pytest

from cosmos_changefeed import CallCancelled, ChangeFeedContext, Changes, StartFrom, TwoSteps
from cosmos_changefeed.handling import as_they_are
from cosmos_changefeed.lease import Lease
from cosmos_changefeed.lease_store import LeaseStore
from devstack.testing import eventually
from tests.changefeed.in_memory import InMemory
from tests.changefeed.support import FAST, Containers, Recorder


async def continuation(containers: Containers) -> str | None:
    value: str | None = (await containers.lease_documents())["..0"]["ContinuationToken"]
    return value


async def checkpointed(containers: Containers) -> bool:
    return await continuation(containers) is not None


async def test_old_and_new_items_are_delivered_in_order(containers: Containers) -> None:
    recorder = Recorder()
    for sequence in range(3):
        await containers.write("a", sequence)

    async with recorder.processor(containers):
        await eventually(lambda: len(recorder.items) == 3)
        for sequence in range(3, 6):
            await containers.write("a", sequence)
        await eventually(lambda: len(recorder.items) == 6)

    assert recorder.ids == [f"a-{sequence}" for sequence in range(6)]
    assert recorder.complaints == []


async def test_the_next_run_goes_on_after_the_checkpoint(containers: Containers) -> None:
    first, second = Recorder(), Recorder()
    await containers.write("a", 1)
    async with first.processor(containers):
        await eventually(lambda: first.ids == ["a-1"])
    await containers.write("a", 2)

    async with second.processor(containers, name="b"):
        await eventually(lambda: second.ids == ["a-2"])


async def test_a_batch_whose_handler_raises_is_reported_and_comes_again(memory: InMemory) -> None:
    recorder = Recorder(failures=3)
    await memory.write("a", 1)

    async with recorder.processor(memory):
        await eventually(lambda: recorder.ids == ["a-1"])

    assert [ids for ids, _ in recorder.batches] == [["a-1"]] * 4
    assert [(token, str(error)) for token, error in recorder.errors] == [("0", "asked to fail")] * 3


async def test_the_pulses_show_a_loop_that_fails_and_one_that_hangs(memory: InMemory) -> None:
    handler = Recorder(failures=10**6)
    async with handler.processor(memory) as processor:
        await eventually(lambda: len(processor.heartbeats) == 2)
        taking, reading = processor.heartbeats
        await eventually(lambda: reading.silent_seconds < 0.05)
        assert not taking.failed
        assert not reading.failed

        await memory.write("a", 1)
        await eventually(lambda: reading.failed)
        handler.failures = 0
        await eventually(lambda: not reading.failed)

        handler.go_on.clear()
        await memory.write("a", 2)
        await eventually(lambda: reading.silent_seconds > 0.5)
        assert not reading.failed
        handler.go_on.set()
        await eventually(lambda: reading.silent_seconds < 0.05)


async def test_there_is_no_checkpoint_before_the_handler_has_returned(memory: InMemory) -> None:
    recorder = Recorder()
    recorder.go_on.clear()
    await memory.write("a", 1)

    async with recorder.processor(memory):
        await eventually(lambda: recorder.batches)
        assert await continuation(memory) is None
        recorder.go_on.set()
        await eventually(lambda: checkpointed(memory))

    context = recorder.batches[0][1]
    assert await continuation(memory) == context.continuation == f'"{recorder.items[0]["_lsn"]}"'
    assert context.lease_token == "0"
    assert context.request_charge > 0


async def test_a_draining_stop_lets_the_handler_end_and_checkpoints(memory: InMemory) -> None:
    recorder = Recorder()
    recorder.go_on.clear()
    await memory.write("a", 1)
    processor = recorder.processor(memory)
    await processor.start()
    await eventually(lambda: recorder.batches)

    stopping = asyncio.create_task(processor.stop())
    await memory.write("a", 2)
    assert not stopping.done()
    recorder.go_on.set()
    await stopping

    assert recorder.ids == ["a-1"]
    assert await continuation(memory) == recorder.batches[0][1].continuation


async def test_a_handler_that_awaits_a_cancelled_task_is_called_again(memory: InMemory) -> None:
    """Its CancelledError is a failure of the handler: nobody has stopped the processor."""
    recorder, calls = Recorder(), 0

    async def handle(changes: Changes, context: ChangeFeedContext) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            elsewhere = asyncio.create_task(asyncio.sleep(10))
            elsewhere.cancel()
            await elsewhere
        await recorder(changes, context)

    await memory.write("a", 1)
    async with recorder.processor(memory, handler=TwoSteps(as_they_are, handle)):
        await eventually(lambda: recorder.has(1))
    assert [type(error) for _, error in recorder.errors] == [CallCancelled]


async def test_a_look_for_leases_that_is_cancelled_elsewhere_is_made_again(
    memory: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a credential, for example, whose calls share one task."""
    recorder, cancelled, read = Recorder(), [True], LeaseStore.all

    async def all_leases(self: LeaseStore) -> list[Lease]:
        if cancelled and not recorder.errors:
            cancelled.clear()
            raise asyncio.CancelledError
        return await read(self)

    await memory.write("a", 1)
    async with recorder.processor(memory):
        monkeypatch.setattr(LeaseStore, "all", all_leases)
        await eventually(lambda: recorder.has(1))
    assert [(token, type(error)) for token, error in recorder.errors] == [(None, CallCancelled)]


@pytest.mark.parametrize("fails", [False, True])
async def test_leaving_the_block_awaits_the_handler_and_an_error_cancels_it(
    memory: InMemory, *, fails: bool
) -> None:
    recorder = Recorder()
    recorder.go_on.clear()
    await memory.write("a", 1)
    with contextlib.suppress(KeyError):
        async with recorder.processor(memory):
            await eventually(lambda: recorder.batches)
            asyncio.get_running_loop().call_later(10, recorder.go_on.set)
            if fails:
                raise KeyError

    assert (recorder.ids, recorder.cancelled) == (([], 1) if fails else (["a-1"], 0))
    assert await checkpointed(memory) is not fails


async def test_a_stop_without_draining_cancels_the_handler_and_delivers_again(memory: InMemory) -> None:
    first, second = Recorder(), Recorder()
    first.go_on.clear()
    await memory.write("a", 1)
    processor = first.processor(memory)
    await processor.start()
    await eventually(lambda: first.batches)

    await processor.stop(drain=False)

    assert first.cancelled == 1
    assert await continuation(memory) is None
    async with second.processor(memory, name="b"):
        await eventually(lambda: second.ids == ["a-1"])


async def test_a_draining_stop_can_be_cut_short(memory: InMemory) -> None:
    recorder = Recorder()
    recorder.go_on.clear()
    await memory.write("a", 1)
    processor = recorder.processor(memory)
    await processor.start()
    await eventually(lambda: recorder.batches)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await processor.stop()
    await processor.stop(drain=False)

    assert recorder.cancelled == 1
    assert (await memory.lease_documents())["..0"]["Owner"] is None


async def test_from_now_means_what_changes_after_the_start(memory: InMemory) -> None:
    await memory.write("a", 1)
    # The service reads the start to the second: what is to be too old must be two seconds old.
    await asyncio.sleep(2.1)
    recorder = Recorder()

    async with recorder.processor(memory, options=replace(FAST, start=StartFrom.now())):
        await memory.write("a", 2)
        await eventually(lambda: recorder.ids)

    assert recorder.ids == ["a-2"]


async def test_from_a_time_means_what_changed_after_it(memory: InMemory) -> None:
    await memory.write("a", 1)
    await asyncio.sleep(1.1)
    between = memory.clock.now().replace(microsecond=0)
    await asyncio.sleep(1.1)
    await memory.write("a", 2)
    recorder = Recorder()

    async with recorder.processor(memory, options=replace(FAST, start=StartFrom.at(between))):
        await eventually(lambda: recorder.ids)

    assert recorder.ids == ["a-2"]


async def test_processors_with_different_prefixes_each_get_everything(memory: InMemory) -> None:
    one, other = Recorder(), Recorder()
    await memory.write("a", 1)

    async with one.processor(memory, prefix="one"), other.processor(memory, prefix="other"):
        await eventually(lambda: one.ids == other.ids == ["a-1"])


async def test_a_processor_is_started_once(memory: InMemory) -> None:
    async with Recorder().processor(memory) as processor:
        with pytest.raises(RuntimeError, match="once"):
            await processor.start()


async def test_no_task_is_left_after_a_stop(containers: Containers) -> None:
    before = asyncio.all_tasks()
    async with Recorder().processor(containers) as processor:
        await eventually(lambda: processor.owned_leases)

    assert asyncio.all_tasks() == before
