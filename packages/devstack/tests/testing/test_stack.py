"""A stack of a test's own: what is killed stays away until it is started again, and nothing is left at the end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import aiohttp
import pytest
from azure.cosmos.aio import CosmosClient

from devstack.testing import Process, Service, Stack, eventually
from devstack.testing.ended import Ended, run_module
from devstack.testing.processes import alive_with, is_alive
from supervisor.shop import SHOP

BEGINS = """
import os, signal, sys
from pathlib import Path
from devstack.testing import Service, Stack, warm
stack = Stack(Path(sys.argv[1]), cosmos=Service("cosmos", Path(sys.argv[1]) / "cosmos")).__enter__()
print(stack.cosmos.pid, stack.servicebus.pid, warm._starter._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
WORKER = "import sys, time; print('working', flush=True); time.sleep(600)"


async def _asked(host: Service) -> dict[str, str]:
    async with aiohttp.ClientSession() as http, http.get(f"{host.address.rstrip('/')}/api/hello") as answer:
        settings: dict[str, str] = await answer.json()
        return settings


async def test_an_app_runs_on_what_it_declares_and_nothing_is_left(tmp_path: Path) -> None:
    with Stack(tmp_path, {"SHOP_DATABASE": "other", "GREETING": "hi"}) as stack:
        stack.make(SHOP)
        stack.make(SHOP)
        host = stack.run(SHOP)
        assert host is stack.functions
        settings = await _asked(host)
        assert settings == {
            "COSMOS": stack.cosmos.connection_string,
            "SERVICEBUS": stack.servicebus.connection_string,
            "GREETING": "hi",
        }
        async with CosmosClient.from_connection_string(stack.cosmos.connection_string) as client:
            await client.get_database_client("other").get_container_client("orders").read()
        another = stack.run_another(SHOP, "another")
        assert (await _asked(another), another.port != host.port) == (settings, True)
        running = [each.pid for each in (stack.cosmos, stack.servicebus, host, another)]
        assert all(map(is_alive, running))
        stack.functions.pause()  # it is woken to be ended
    assert not [pid for pid in running if is_alive(pid)]


async def test_what_is_killed_stays_away_until_it_is_started_again(stack: Stack) -> None:
    async with CosmosClient.from_connection_string(stack.cosmos.connection_string) as client:
        await client.create_database("kept")
        port, pid = stack.cosmos.port, stack.cosmos.pid
        stack.cosmos.kill()
        assert not stack.cosmos.is_running
        stack.cosmos.start()
        assert (stack.cosmos.port, stack.cosmos.is_running) == (port, True)
        assert stack.cosmos.pid != pid
        await client.get_database_client("kept").read()


async def test_any_process_can_belong_to_it(tmp_path: Path, stack: Stack) -> None:
    worker = Process("worker", tmp_path / "worker.log", [sys.executable, "-c", WORKER], stack.settings)
    stack.add(worker)
    await eventually(lambda: "working" in worker.log.read_text())
    worker.restart()
    await eventually(lambda: worker.log.read_text().count("working") == 2)
    stack.kill()
    assert not worker.is_running
    assert not stack.servicebus.is_running


def test_a_service_that_does_not_come_up_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "cosmos").mkdir()
    (tmp_path / "cosmos" / "cosmos.db").write_bytes(b"this is no database" * 100)
    with (
        pytest.raises(AssertionError, match=r"cosmos did not become ready:\n.*is damaged"),
        Stack(tmp_path),
    ):
        pass
    assert alive_with(str(tmp_path)) == []


STARTED = {"PYTHONHASHSEED": "1"}
"""With another environment for Python itself a service is not forked from one that is warm, but started."""


@pytest.mark.parametrize(
    "environment",
    [pytest.param({}, id="forked"), pytest.param(STARTED, id="started", marks=pytest.mark.long)],
)
def test_a_service_is_a_process_of_its_own_however_it_begins(
    environment: dict[str, str], tmp_path: Path
) -> None:
    service = Service("cosmos", tmp_path / "cosmos", environment=environment).start()
    first = service.pid
    assert (alive_with(str(tmp_path)) == [first]) is (environment == STARTED)
    assert os.getsid(first) == os.getpgid(first) == first
    assert service.terminate() == 0
    service.start()
    second = service.pid
    os.kill(second, signal.SIGKILL)
    assert service.terminate() == -signal.SIGKILL
    assert not is_alive(first)
    assert not is_alive(second)


PROGRAM = """
import atexit, os, sys, threading
from . import HERE
print(__name__, HERE, sys.argv[1:], os.environ["SAID"], os.getcwd() == sys.path[0])
atexit.register(print, "the end", flush=True)
threading.Timer(0.05, print, ["a thread"]).start()
raise SystemExit(3)
"""


@pytest.mark.parametrize("environment", [{}, STARTED], ids=["forked", "started"])
def test_a_module_runs_as_its_command_says_however_it_begins(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """``tests`` is what the warm process may have imported from elsewhere."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "__init__.py").write_text("HERE = 'of this folder'")
    (tmp_path / "tests" / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "tests.program", "a", "b"]
    settings = {**environment, "SAID": "said"}
    program = Process("program", tmp_path / "log", command, settings, tmp_path).start()
    deadline = time.monotonic() + 30
    while program.is_running:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert program.terminate() == 3
    lines = ["__main__ of this folder ['a', 'b'] said True", "a thread", "the end"]
    assert program.log.read_text().splitlines() == lines


@pytest.mark.parametrize("environment", [{}, STARTED], ids=["forked", "started"])
def test_a_commands_output_is_returned_with_its_exit_code(
    environment: dict[str, str], tmp_path: Path
) -> None:
    program = "import sys\nprint('said' * 50_000)\nprint('an error', file=sys.stderr)\nraise SystemExit(3)\n"
    (tmp_path / "talker.py").write_text(program)
    ended = run_module("talker", environment={**os.environ, **environment}, folder=tmp_path)
    assert ended == Ended(3, "said" * 50_000 + "\n", "an error\n")


@pytest.mark.long  # each service ends with its standard input: servicebus/test_process.py
def test_services_end_with_the_process_that_began_them(tmp_path: Path) -> None:
    begun = subprocess.run(
        [sys.executable, "-c", BEGINS, tmp_path], capture_output=True, text=True, check=False
    )
    assert begun.returncode == -signal.SIGKILL
    pids = [int(pid) for pid in begun.stdout.split()]
    assert len(pids) == 3
    deadline = time.monotonic() + 30
    while any(map(is_alive, pids)):
        assert time.monotonic() < deadline, "something outlived the tests"
        time.sleep(0.02)


def test_before_an_app_runs_there_is_no_host(stack: Stack) -> None:
    with pytest.raises(AssertionError, match="the stack runs no app: call run"):
        _ = stack.functions
