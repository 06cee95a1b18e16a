"""Functions run in processes of their own, which share nothing, are replaced, and never outlive the host."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import aiohttp

from devstack.testing import Service, eventually, running
from functions.support import host, make_host


async def process(http: aiohttp.ClientSession) -> str:
    """The id of the process in which a function ran."""
    async with http.get("api/process") as answer:
        assert answer.status == 200
        return await answer.text()


@contextlib.asynccontextmanager
async def http_at(folder: Path, **settings: str) -> AsyncIterator[tuple[aiohttp.ClientSession, Service]]:
    with host(folder, "workers", settings, "--drain-seconds=0.2") as service:
        async with aiohttp.ClientSession(service.address) as session:
            yield session, service


def is_running(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    return True


async def none_is_running(pids: Iterable[str]) -> None:
    await eventually(lambda: not any(map(is_running, pids)))


async def test_one_process_runs_all_and_it_is_not_the_host(tmp_path: Path) -> None:
    async with http_at(tmp_path) as (http, service):
        seen = [await process(http) for _ in range(4)]

        assert len(set(seen)) == 1
        assert seen[0] != str(service.pid)


async def test_calls_take_turns_among_the_processes(tmp_path: Path) -> None:
    async with http_at(tmp_path, FUNCTIONS_WORKER_PROCESS_COUNT="3") as (http, _):
        seen = [await process(http) for _ in range(6)]

    assert len(set(seen)) == 3
    assert seen[:3] == seen[3:]


async def test_a_function_over_its_timeout_ends_its_process_and_all_its_calls(tmp_path: Path) -> None:
    settings = {"AzureFunctionsJobHost__functionTimeout": "00:00:02"}
    async with http_at(tmp_path, **settings) as (http, service):
        before = await process(http)
        first = asyncio.create_task(http.get("api/hang"))
        await eventually(lambda: "it hangs" in service.log.read_text())
        second = asyncio.create_task(http.get("api/hang"))
        for hanging in (first, second):
            async with await hanging as answer:
                assert (answer.status, await answer.read()) == (500, b"")
        after = await process(http)

    assert after != before
    assert not is_running(before)
    log = service.log.read_text()
    assert "hang ran longer than functionTimeout (2 s)" in log
    assert log.count("failed: GET /api/hang") == 2


async def test_a_process_that_is_being_ended_takes_no_further_call(tmp_path: Path) -> None:
    settings = {"AzureFunctionsJobHost__functionTimeout": "00:00:02"}
    async with http_at(tmp_path, **settings) as (http, _):
        hanging = [asyncio.create_task(http.get("api/hang")) for _ in range(20)]
        for each in asyncio.as_completed(hanging):
            async with await each as answer:
                assert answer.status == 500
            break
        next_calls = [asyncio.create_task(process(http)) for _ in range(5)]
        assert len(set(await asyncio.gather(*next_calls))) == 1
        await asyncio.gather(*hanging)


async def test_a_process_that_ends_is_replaced_and_what_ran_in_it_fails(tmp_path: Path) -> None:
    async with http_at(tmp_path) as (http, service):
        before = await process(http)
        async with http.get("api/exit") as answer:
            assert answer.status == 500
        assert await process(http) != before

    assert "a worker process ended; another one is started" in service.log.read_text()


async def test_no_process_outlives_a_host_that_is_stopped_or_killed(tmp_path: Path) -> None:
    service = make_host(tmp_path, "workers", {"FUNCTIONS_WORKER_PROCESS_COUNT": "2"}, "--stop-seconds=0.1")
    for end in (service.terminate, lambda: os.kill(service.pid, 9)):
        with running(service):
            async with aiohttp.ClientSession(service.address) as http:
                seen = [await process(http) for _ in range(2)]
            end()
            await none_is_running(seen)
