"""One supervised process, with fakes for the services: how it starts, dies, comes back and is ended."""

import asyncio
import contextlib
import io
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from devstack.child import EndedEarly
from devstack.console import Console
from devstack.kept import KeptService, Recipe
from devstack.service import CannotStart
from devstack.testing import eventually
from devstack.testing.processes import is_alive

FAKE = Path(__file__).with_name("fake_service.py")


class Kept:
    """A fake under supervision, and what was said about it."""

    def __init__(self, manner: str, folder: Path) -> None:
        self.output = io.StringIO()
        command = [sys.executable, str(FAKE), manner]
        environment = {**os.environ, "TURNS": str(folder / "turns")}
        self.service = KeptService(
            Recipe("cosmos", command, {"--port": 0}, environment), Console(self.output)
        )

    @property
    def lines(self) -> list[str]:
        return self.output.getvalue().splitlines()

    async def answers(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.service.ports[0])
        except OSError:
            return False
        writer.close()
        await writer.wait_closed()
        return True


@contextlib.asynccontextmanager
async def kept(manner: str, folder: Path) -> AsyncIterator[Kept]:
    """Started, and looked after in the background."""
    fake = Kept(manner, folder)
    await fake.service.start()
    keeper = asyncio.create_task(fake.service.keep())
    try:
        yield fake
    finally:
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
        await fake.service.stop(2)


def _pid_of(service: KeptService) -> int:
    assert service._child is not None
    assert service._child._process is not None
    return service._child._process.pid


async def test_it_is_started_on_a_port_of_its_own_and_its_log_is_passed_on(tmp_path: Path) -> None:
    async with kept("serve", tmp_path) as fake:
        assert fake.service.addresses == [f"http://127.0.0.1:{fake.service.ports[0]}/"]
        assert await fake.answers()
        await eventually(lambda: fake.lines == ["cosmos     | loading", "cosmos     | serving"])
    assert not await fake.answers()


async def test_a_killed_one_is_back_on_the_same_port(tmp_path: Path) -> None:
    async with kept("serve", tmp_path) as fake:
        addresses, pid = fake.service.addresses, _pid_of(fake.service)
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: any("is back on" in line for line in fake.lines))
        assert fake.service.addresses == addresses
        assert _pid_of(fake.service) != pid
        assert await fake.answers()
        assert "devstack   | cosmos was ended by SIGKILL; it is started again" in fake.lines


async def test_one_that_crashes_while_it_comes_back_is_tried_again(tmp_path: Path) -> None:
    async with kept("by_turns", tmp_path) as fake:
        os.kill(_pid_of(fake.service), signal.SIGKILL)
        await eventually(lambda: any("is back on" in line for line in fake.lines))
        assert "cosmos     | Traceback: something broke" in fake.lines
        assert await fake.answers()


async def test_one_that_says_it_cannot_come_back_is_given_up_with_its_reason(tmp_path: Path) -> None:
    fake = Kept("refuse_later", tmp_path)
    await fake.service.start()
    os.kill(_pid_of(fake.service), signal.SIGKILL)
    with pytest.raises(CannotStart, match=r"^fake: the cupboard is bare; fill it$"):
        await asyncio.wait_for(fake.service.keep(), 10)


async def test_a_failed_starts_reason_is_its_last_line_which_is_not_logged(tmp_path: Path) -> None:
    fake = Kept("refuse", tmp_path)
    with pytest.raises(CannotStart, match=r"^fake: the cupboard is bare; fill it$"):
        await fake.service.start()
    assert fake.lines == ["cosmos     | loading"]


async def test_a_crash_at_the_start_is_no_mistake_of_the_user(tmp_path: Path) -> None:
    fake = Kept("crash", tmp_path)
    with pytest.raises(EndedEarly, match="cosmos ended with exit code 1 before it was ready"):
        await fake.service.start()
    assert fake.lines == ["cosmos     | Traceback: something broke"]


async def test_one_that_is_deaf_is_ended_after_its_grace_with_all_it_started(tmp_path: Path) -> None:
    fake = Kept("deaf", tmp_path)
    await fake.service.start()
    pid = _pid_of(fake.service)
    await eventually(lambda: any("grandchild" in line for line in fake.lines))
    grandchild = int(fake.lines[-1].split()[-1])
    assert is_alive(grandchild)
    began = asyncio.get_running_loop().time()
    await fake.service.stop(0.3)
    assert asyncio.get_running_loop().time() - began >= 0.3
    assert not is_alive(pid)
    await eventually(lambda: not is_alive(grandchild))


async def test_a_stopped_process_is_ended_too(tmp_path: Path) -> None:
    fake = Kept("serve", tmp_path)
    await fake.service.start()
    pid = _pid_of(fake.service)
    os.kill(pid, signal.SIGSTOP)
    await fake.service.stop(0.2)
    assert not is_alive(pid)


async def test_long_and_undecodable_lines_are_passed_on_whole(tmp_path: Path) -> None:
    async with kept("talkative", tmp_path) as fake:
        await eventually(lambda: any("is no UTF-8" in line for line in fake.lines))
        assert sum(line.count("x") for line in fake.lines) == 200_000
        assert "cosmos     | \N{REPLACEMENT CHARACTER} is no UTF-8" in fake.lines


async def test_cancelling_the_start_leaves_no_process(tmp_path: Path) -> None:
    fake = Kept("never_ready", tmp_path)
    starting = asyncio.create_task(fake.service.start())
    await eventually(lambda: fake.service._child is not None and fake.service._child._process is not None)
    pid = _pid_of(fake.service)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not is_alive(pid)
