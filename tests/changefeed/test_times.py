"""In virtual time: a lease lives as long as it is renewed, and a failure costs the time that it should, and no more."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from azure.core.exceptions import ServiceRequestError

from cosmos_changefeed.lease import Lease
from cosmos_changefeed.lease_store import LeaseStore
from devstack.testing import eventually
from tests.changefeed.in_memory import InMemory
from tests.changefeed.support import USUAL, Recorder


def seconds() -> float:
    return asyncio.get_running_loop().time()


async def pass_time(wanted: float) -> None:
    """That much virtual time: nobody waits."""
    await asyncio.sleep(wanted)


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[float]]:
    """From now on a call of the lease store fails; the times of the calls are noted."""

    def fail(name: str) -> list[float]:
        asked: list[float] = []

        async def refused(*_: object) -> list[Lease]:
            asked.append(seconds())
            raise ServiceRequestError("the store is away")

        monkeypatch.setattr(LeaseStore, name, refused)
        return asked

    return fail


async def test_a_lease_is_retried_often_and_given_up_only_when_it_expires(
    memory: InMemory, away: Callable[[str], list[float]]
) -> None:
    """After its 60 seconds another instance may own it: neither later, nor at the first failure."""
    recorder = Recorder()
    recorder.go_on.clear()
    await memory.write("a", 1)
    asked = away("renew")
    async with recorder.processor(memory, options=USUAL):
        await eventually(lambda: recorder.batches)
        acquired = seconds()
        await eventually(lambda: recorder.cancelled)
        assert seconds() - acquired == pytest.approx(60, abs=0.5)
        recorder.go_on.set()
    assert len(asked) > 5, "not once each 17 s"
    reported = [(token, str(error)) for token, error in recorder.errors]
    assert reported[: len(asked)] == [("0", "the store is away")] * len(asked)


async def test_a_lease_whose_renewal_is_not_answered_is_given_up_when_it_expires(
    memory: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder()
    recorder.go_on.clear()
    await memory.write("a", 1)
    async with recorder.processor(memory, options=USUAL):
        await eventually(lambda: recorder.batches)
        acquired = seconds()
        monkeypatch.setattr(memory.troubles, "silent", True)
        await eventually(lambda: recorder.cancelled)
        assert seconds() - acquired == pytest.approx(60, abs=0.5)
        monkeypatch.undo()
        recorder.go_on.set()
        await eventually(lambda: recorder.ids == ["a-1"])


async def test_a_lease_counts_from_its_request_and_not_from_a_late_answer(
    memory: InMemory, away: Callable[[str], list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others take the lease by the time that is written in it."""
    recorder, acquire, asked = Recorder(), LeaseStore.acquire, list[float]()
    recorder.go_on.clear()
    await memory.write("a", 1)

    async def answered_late(store: LeaseStore, lease: Lease, owner: str) -> Lease:
        asked.append(seconds())
        acquired = await acquire(store, lease, owner)
        await asyncio.sleep(45)
        return acquired

    monkeypatch.setattr(LeaseStore, "acquire", answered_late)
    away("renew")
    async with recorder.processor(memory, options=replace(USUAL, acquire_interval=10**4)):
        await eventually(lambda: recorder.cancelled)
        assert seconds() - asked[0] == pytest.approx(60, abs=0.5)
        recorder.go_on.set()


async def test_a_stop_does_not_wait_for_a_cosmos_that_does_not_answer(
    memory: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    processor = Recorder().processor(memory, options=USUAL)
    await processor.start()
    await eventually(lambda: processor.owned_leases)
    monkeypatch.setattr(memory.troubles, "silent", True)
    began = seconds()
    await processor.stop(drain=False)
    assert seconds() - began < 10
    monkeypatch.undo()


async def test_a_lease_that_is_renewed_is_kept_for_as_long_as_a_handler_takes(memory: InMemory) -> None:
    recorder = Recorder()
    recorder.go_on.clear()
    await memory.write("a", 1)
    async with recorder.processor(memory, options=USUAL):
        await eventually(lambda: recorder.batches)
        await pass_time(600)
        recorder.go_on.set()
        await eventually(lambda: recorder.ids == ["a-1"])
    assert (recorder.cancelled, len(recorder.batches), recorder.errors) == (0, 1, [])


async def test_a_restarted_instance_has_its_own_leases_again_at_once(memory: InMemory) -> None:
    """Only another one waits until they expire."""
    await leave_to("a", memory)
    await memory.write("a", 1)
    rival, again = Recorder(), Recorder()
    async with rival.processor(memory, name="rival", options=USUAL):
        await pass_time(40)
        assert rival.batches == []
        began = seconds()
        async with again.processor(memory, name="a", options=USUAL):
            await eventually(lambda: again.ids == ["a-1"])
            assert seconds() - began < 2


async def leave_to(owner: str, memory: InMemory) -> None:
    """As an instance that died right after it acquired all leases."""
    async with Recorder().processor(memory):
        pass
    store = await memory.lease_store()
    for lease in await store.all():
        await store.acquire(lease, owner)


async def test_the_lease_loops_pulse_shows_that_it_fails_and_goes_on(
    memory: InMemory, away: Callable[[str], list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder()
    async with recorder.processor(memory, options=USUAL) as processor:
        taking, *_ = processor.heartbeats
        await pass_time(100)
        assert (taking.failed, taking.silent_seconds < 14) == (False, True)
        away("all")
        await pass_time(100)
        assert (taking.failed, taking.silent_seconds < 14) == (True, True)
        assert {(token, str(error)) for token, error in recorder.errors} == {(None, "the store is away")}
        monkeypatch.undo()
        await pass_time(100)
        assert (taking.failed, taking.silent_seconds < 14) == (False, True)


@pytest.mark.parametrize("changes", [0, 1])
async def test_a_stop_waits_for_no_poll(memory: InMemory, changes: int) -> None:
    recorder = Recorder()
    for sequence in range(changes):
        await memory.write("a", sequence)
    options = replace(USUAL, poll_interval=10_000)
    async with recorder.processor(memory, options=options) as processor:
        await eventually(lambda: processor.owned_leases)
        await pass_time(5)
        assert len(recorder.ids) == changes
        began = seconds()
    assert seconds() - began < 1
    assert (await memory.lease_documents())["..0"]["Owner"] is None
