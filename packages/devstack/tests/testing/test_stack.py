"""A stack of a test's own: what is killed stays away until it is started again, and nothing is left at the end."""

import sys
from pathlib import Path

import aiohttp
import pytest
from azure.cosmos.aio import CosmosClient

from devstack.testing import Process, Service, Stack, eventually
from devstack.testing.processes import alive_with
from supervisor.shop import SHOP

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
        stack.functions.pause()  # it is woken to be ended
    assert alive_with(str(tmp_path)) == []


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


def test_before_an_app_runs_there_is_no_host(stack: Stack) -> None:
    with pytest.raises(AssertionError, match="the stack runs no app: call run"):
        _ = stack.functions
