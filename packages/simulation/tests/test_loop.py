"""Virtual time, a seeded order, crashes without last words, pauses; and nothing of it outlives the run."""

import asyncio
import gc
import logging
import random
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable

import pytest

from outbox_simulation.engine.guard import ReachedOut
from outbox_simulation.engine.instance import SimulatedInstance
from outbox_simulation.engine.loop import Loop


@pytest.fixture(autouse=True, scope="module")
def what_others_left() -> None:
    """Is not looked through by each test that looks for garbage."""
    gc.collect()
    gc.freeze()


def test_time_jumps_to_the_next_timer() -> None:
    loop, began = Loop(), time.monotonic()

    async def main() -> float:
        await asyncio.sleep(86_400)
        async with asyncio.timeout(5):
            await asyncio.sleep(4)
        return asyncio.get_running_loop().time()

    assert loop.run(main()) == 86_404
    assert time.monotonic() - began < 5


def _order(pick: random.Random | None) -> list[int]:
    seen: list[int] = []

    async def note(number: int) -> None:
        await asyncio.sleep(1)
        seen.append(number)

    async def main() -> None:
        await asyncio.gather(*(note(number) for number in range(20)))

    Loop(pick).run(main())
    return seen


def test_the_order_is_the_seeds() -> None:
    assert _order(random.Random(1)) == _order(random.Random(1))
    assert _order(random.Random(1)) != _order(random.Random(2))


def test_of_a_crashed_instance_nothing_runs_again(caplog: pytest.LogCaptureFixture) -> None:
    said: list[str] = []
    loop = Loop(random.Random(3))

    async def work() -> None:
        said.append("begun")
        try:
            async with asyncio.timeout(100):
                await asyncio.sleep(10)
            said.append("went on")
        finally:
            said.append("finally")
            await asyncio.sleep(0)

    async def main() -> list[str]:
        victim = SimulatedInstance("victim", loop.outside())
        loop.begin(victim, work())
        loop.begin(victim, asyncio.sleep(20))
        await asyncio.sleep(5)
        loop.crash(victim)
        await asyncio.sleep(1000)
        gc.collect()
        return list(said)

    with caplog.at_level(logging.DEBUG):
        assert loop.run(main()) == ["begun"]
        gc.collect()
    assert not loop.complaints
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def _open_file() -> None:
    tempfile.TemporaryFile().close()


def _open_thread() -> None:
    threading.Thread(target=print).start()


def _open_socket() -> None:
    socket.socket().close()


def _open_process() -> None:
    subprocess.run([sys.executable, "-c", ""], check=True)


def _open_database() -> None:
    sqlite3.connect("nothing.db")


@pytest.mark.parametrize("reach_out", [_open_file, _open_thread, _open_socket, _open_process, _open_database])
def test_what_opens_something_real_is_named(reach_out: Callable[[], None]) -> None:
    async def main() -> None:
        reach_out()

    with pytest.raises(ReachedOut, match=rf"test_loop\.py:\d+ in {reach_out.__name__}"):
        Loop().run(main())
