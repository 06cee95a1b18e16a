"""A relay that drains ends by itself, and its exit code says whether all is forwarded that was stored."""

import asyncio
import sys
from pathlib import Path

import pytest

from devstack.testing import Process, eventually
from tests.e2e.conftest import Stack, stack
from tests.e2e.test_relay_worker import create, leases, service, settings, worker
from tests.support import command
from tests.support.paths import ROOT

pytestmark = pytest.mark.own_stack

ALL = "all is forwarded that was stored at the start"


async def once(started: Stack, *arguments: str) -> command.Ended:
    environment = settings(started) | {"PATH": "/usr/bin:/bin"}
    return await asyncio.to_thread(
        command.run_command, "relay", "--once", *arguments, environment=environment
    )


async def is_relayed(started: Stack) -> bool:
    """Whether somebody has the lease."""
    return [each["Owner"] is not None for each in await leases(started)] == [True]


async def test_it_ends_when_all_is_forwarded_whether_there_is_much_or_nothing(tmp_path: Path) -> None:
    with stack(tmp_path) as started:
        # A host that ends while it gets its lease may leave it behind, until it expires.
        await eventually(lambda: is_relayed(started))
        assert started.functions.terminate() == 0

        nothing = await once(started)
        assert (nothing.code, nothing.out) == (
            0, f"relay: {ALL}; 0 event(s) forwarded by this relay\n"
        )  # fmt: skip

        async with service(started) as contacts:
            ids = [await create(contacts) for _ in range(30)]
            backlog = await once(started)
            assert (backlog.code, backlog.out) == (0, f"relay: {ALL}; 30 event(s) forwarded by this relay\n")
            assert await started.sequences(str(ids[29]), 1) == [1]
            [lease] = await leases(started)
            assert lease["Owner"] is None

            again = await once(started)
            assert (again.code, "0 event(s)" in again.out) == (0, True)


async def test_it_waits_for_what_another_relay_forwards(tmp_path: Path) -> None:
    with stack(tmp_path) as started:
        assert started.functions.terminate() == 0
        log = tmp_path / "worker.log"
        async with service(started) as contacts:
            with worker(started, log):
                first = await create(contacts)
                assert await started.sequences(str(first), 1) == [1]
                await create(contacts)
                done = await once(started)
    assert done.code == 0
    assert done.out.startswith(f"relay: {ALL}; ")
    assert "1 lease(s) held by others" in done.out


@pytest.mark.long
async def test_a_broker_that_is_away_ends_it_with_another_code_and_a_reason(tmp_path: Path) -> None:
    with stack(tmp_path) as started:
        assert started.functions.terminate() == 0
        async with service(started) as contacts:
            await create(contacts)
        assert started.servicebus.terminate() == 0
        done = await once(started, "--for", "15")
        assert done.code == 1
        assert done.out.startswith("relay: events wait: 15 s are over. ")
        assert "Service Bus cannot be reached" in done.out
        assert "Run the command again" in done.out

        started.servicebus.start()
        assert (await once(started)).code == 0


async def test_told_to_stop_it_says_that_events_wait_and_the_next_one_goes_on(tmp_path: Path) -> None:
    with stack(tmp_path) as started:
        assert started.functions.terminate() == 0
        async with service(started) as contacts:
            await create(contacts)
        assert started.servicebus.terminate() == 0
        log = tmp_path / "once.log"
        process = Process(
            "relay", log, [sys.executable, "-m", "cosmos_outbox", "relay", "--once"], settings(started), ROOT
        ).start()
        await eventually(lambda: "events wait" in log.read_text() or "event(s) wait" in log.read_text())
        assert process.terminate() == 1
        assert "the relay was told to stop" in log.read_text()
        started.servicebus.start()
        assert (await once(started)).code == 0


@pytest.mark.long
async def test_for_a_time_it_goes_on_until_the_time_is_over(tmp_path: Path) -> None:
    with stack(tmp_path) as started:
        assert started.functions.terminate() == 0
        environment = settings(started) | {"PATH": "/usr/bin:/bin"}
        running = asyncio.create_task(
            asyncio.to_thread(command.run_command, "relay", "--for", "20", environment=environment)
        )
        async with service(started) as contacts:
            await eventually(lambda: leases(started))
            late = await create(contacts)
            assert await started.sequences(str(late), 1) == [1]
        done = await running
    assert (done.code, done.out) == (0, f"relay: {ALL}; 1 event(s) forwarded by this relay\n")


@pytest.mark.parametrize("text", ["0", "-1", "soon", "nan", "999999"])
def test_a_time_that_is_none_is_refused(text: str) -> None:
    done = command.run_command("relay", "--for", text, environment={})
    assert done.code == 2
    assert "is no time" in done.err
