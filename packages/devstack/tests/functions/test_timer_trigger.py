"""A timer fires on its schedule, at the start when asked to, and ends with the host."""

import asyncio
import fcntl
import json
import time
from pathlib import Path

import aiohttp
import pytest

from devstack.testing import Service, eventually, running
from functions.support import host, make_host, recorded


async def test_a_timer_fires_at_the_start_and_then_every_second(tmp_path: Path) -> None:
    file = tmp_path / "record"
    with host(tmp_path / "host", "bus", {"BINDINGS": "timer", "RECORD": str(file)}) as service:
        await eventually(lambda: len(recorded(file)) >= 3)

    assert {(call["what"], call["past_due"]) for call in recorded(file)} == {("timer", False)}
    assert "Traceback" not in service.log.read_text()


async def test_a_stop_waits_for_the_running_function_and_no_longer(tmp_path: Path) -> None:
    file = tmp_path / "record"
    settings = {"BINDINGS": "timer", "RECORD": str(file), "TIMER_SECONDS": "1"}
    service = make_host(tmp_path / "host", "bus", settings, "--drain-seconds=29").start()
    await eventually(lambda: recorded(file))
    begun = time.monotonic()
    assert await asyncio.to_thread(service.terminate) == 0

    assert time.monotonic() - begun < 20
    assert len(recorded(file)) == 1
    assert "cut off" not in service.log.read_text()


async def test_an_administrator_runs_a_timer_at_once(tmp_path: Path) -> None:
    file = tmp_path / "record"
    settings = {"BINDINGS": "timer", "RECORD": str(file), "TIMER_SCHEDULE": "0 0 0 1 1 *"}
    async with aiohttp.ClientSession() as http:
        with host(tmp_path / "host", "bus", settings, "--keys") as service:
            keys = json.loads((tmp_path / "host" / "keys.json").read_text())
            await eventually(lambda: len(recorded(file)) == 1)  # at its start

            async def run(name: str, key: str) -> int:
                url = f"{service.address}admin/functions/{name}"
                async with http.post(url, json={}, headers={"x-functions-key": key}) as answer:
                    return answer.status

            assert await run("timer", keys["default"]) == 401
            assert await run("nobody", keys["master"]) == 404
            assert await run("timer", keys["master"]) == 202
            await eventually(lambda: len(recorded(file)) == 2)


async def test_of_several_hosts_one_fires_and_another_takes_over(tmp_path: Path) -> None:
    data = f"--data={tmp_path / 'data'}"

    def make(name: str) -> Service:
        settings = {"BINDINGS": "timer", "RECORD": str(tmp_path / name)}
        return make_host(tmp_path / f"host-{name}", "bus", settings, data)

    first = make("first").start()
    await eventually(lambda: recorded(tmp_path / "first"))
    with running(make("second")):
        seen = len(recorded(tmp_path / "first"))
        await eventually(lambda: len(recorded(tmp_path / "first")) >= seen + 2)
        assert not recorded(tmp_path / "second"), "not at its start either"
        first.kill()
        await eventually(lambda: recorded(tmp_path / "second"))
        with (tmp_path / "data" / "lock").open("a") as folder, pytest.raises(BlockingIOError):
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)  # as "devstack clean" does
