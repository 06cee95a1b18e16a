"""What a processor does in the background leaves nothing behind: no task, and no error that nobody looks at."""

import asyncio
import gc
import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from cosmos_changefeed import Changes, TwoSteps
from devstack.testing import eventually
from tests.changefeed.in_memory import InMemory
from tests.changefeed.support import FAST, Recorder
from tests.contract.in_memory import MemoryLoop

SELDOM = replace(
    FAST, poll_interval=10**5, acquire_interval=10**5, expiration_interval=10**6, renew_interval=10**5
)
"""After its first look a processor does nothing but what it is woken for."""


def complaints() -> Sequence[str]:
    """What asyncio says of errors that nobody looked at."""
    gc.collect()
    loop = asyncio.get_running_loop()
    assert isinstance(loop, MemoryLoop)
    return loop.complaints


def tasks(name: str) -> list["weakref.ref[asyncio.Task[Any]]"]:
    return [weakref.ref(each) for each in asyncio.all_tasks() if each.get_name() == name]


@pytest.mark.parametrize("known", [True, False])
async def test_a_wake_by_key_finds_the_change_and_leaves_nothing_behind(
    memory: InMemory, monkeypatch: pytest.MonkeyPatch, *, known: bool
) -> None:
    """Where the key has no known place, too: a program may wake a processor with each of its writes for weeks."""

    async def away(*_: object) -> str:
        raise OSError("away")

    if not known:
        monkeypatch.setattr("cosmos_changefeed.processor.effective_key", away)
    memory.split("0")
    recorder = Recorder()
    async with recorder.processor(memory, options=SELDOM) as processor:
        await eventually(lambda: len(processor.owned_leases) == 2)
        await asyncio.sleep(5)
        for number in range(3):
            await memory.write("a", number)
            processor.wake("a")
            [waking] = tasks("change feed wake")
            began = memory.clock.monotonic()
            await eventually(lambda: len(recorder.ids) == number + 1)  # noqa: B023 - awaited here
            assert memory.clock.monotonic() - began < 1
            await asyncio.sleep(1)
            assert complaints() == []
            assert waking() is None


async def test_a_stop_ends_a_wake_that_waits_for_the_place_of_its_key(
    memory: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unanswered(*_: object) -> str:
        await asyncio.Event().wait()
        return ""

    monkeypatch.setattr("cosmos_changefeed.processor.effective_key", unanswered)
    memory.split("0")
    async with Recorder().processor(memory, options=SELDOM) as processor:
        await eventually(lambda: len(processor.owned_leases) == 2)
        processor.wake("a")
        await asyncio.sleep(1)
        assert len(tasks("change feed wake")) == 1
    await asyncio.sleep(1)
    assert tasks("change feed wake") == []


async def test_the_task_of_a_lease_that_was_lost_is_kept_by_nobody(memory: InMemory) -> None:
    async with Recorder().processor(memory, options=FAST) as processor:
        await eventually(lambda: processor.owned_leases)
        [supervisor] = tasks("lease 0")
        await memory.delete_leases()
        await eventually(lambda: not processor.owned_leases)
        await asyncio.sleep(1)
        assert complaints() == []
        assert supervisor() is None


async def test_a_dropped_page_that_fails_leaves_no_unretrieved_exception(memory: InMemory) -> None:
    """The page before has failed, and both come again."""
    recorder, prepared = Recorder(), list[str]()
    recorder.go_on.clear()

    async def prepare(changes: Changes) -> Changes:
        prepared.append(changes[0]["id"])
        if prepared == ["a-0", "a-1"]:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise ValueError("it cannot be ended in good order") from None
        return changes

    for sequence in range(2):
        await memory.write("a", sequence)
    steps = TwoSteps(prepare, recorder)
    options = replace(FAST, max_items=1)
    async with recorder.processor(memory, options=options, handler=steps):
        await eventually(lambda: prepared == ["a-0", "a-1"])
        recorder.failures = 1
        recorder.go_on.set()
        await eventually(lambda: recorder.ids == ["a-0", "a-1"])
        assert complaints() == []
    assert [str(error) for _, error in recorder.errors] == ["asked to fail"]
