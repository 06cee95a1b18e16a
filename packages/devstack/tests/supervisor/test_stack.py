"""The stack as one process tree: how it comes up, stops, heals and refuses. Most need no host, which is faster."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest
from azure.cosmos.aio import ContainerProxy, CosmosClient

from devstack import local_azure, supervisor
from devstack.console import Console
from devstack.settings import cosmos_connection, read_settings, servicebus_connection
from devstack.testing import eventually
from devstack.testing.command import ANY_PORTS, Command, running_command, settings_file
from devstack.testing.ended import run_module
from devstack.testing.processes import alive_with
from supervisor.shop import SHOP

BACKENDS = "--no-functions"


def _port(address: str) -> int:
    return int(address.rstrip("/").rpartition(":")[2])


def _client(running: Command) -> CosmosClient:
    return CosmosClient.from_connection_string(cosmos_connection(_port(running.address("Cosmos DB"))))


def _orders(client: CosmosClient) -> ContainerProxy:
    return client.get_database_client("shop").get_container_client("orders")


def _item(text: str) -> dict[str, str]:
    return {"id": text, "customerId": "p"}


def _refused(folder: Path, *arguments: str, **environment: str) -> str:
    """The one line with which a stack does not start."""
    if not any(argument.startswith("--settings") for argument in arguments):
        arguments = (*arguments, f"--settings={settings_file(SHOP, folder)}")
    given = {**os.environ, **ANY_PORTS, "DEVSTACK_DATA": str(folder / "data"), **environment}
    ended = run_module("devstack", f"--app={SHOP}", *arguments, environment=given)
    assert ended.code == 2, ended.out + ended.err
    assert ended.err.count("\n") == 1
    assert alive_with(str(folder)) == []
    return ended.err


def test_it_can_be_stopped_while_it_starts(tmp_path: Path) -> None:
    running = Command(SHOP, tmp_path, BACKENDS)
    running.wait_for("devstack   | settings")
    assert running.end() == 0
    assert running.processes() == []
    assert not any(line.startswith("Ready") for line in running.lines)


@pytest.mark.long  # each service ends with its standard input: servicebus/test_process.py
async def test_a_supervisor_that_is_killed_takes_its_services_along(tmp_path: Path) -> None:
    with running_command(SHOP, tmp_path, BACKENDS) as running:
        assert running.end(signal.SIGKILL) == -signal.SIGKILL
        await eventually(lambda: running.processes() == [])


@pytest.mark.long
async def test_two_stacks_side_by_side_do_not_meet(tmp_path: Path) -> None:
    with (
        running_command(SHOP, tmp_path / "one", BACKENDS) as one,
        running_command(SHOP, tmp_path / "two", BACKENDS) as two,
    ):
        async with _client(one) as first, _client(two) as second:
            await _orders(first).create_item(_item("mine"))
            found = [item["id"] async for item in _orders(second).read_all_items()]
            assert found == []
        # And not on one folder: the second is refused, the first goes on.
        assert "is in use by another process" in _refused_on(one)
        assert len(one.processes()) == 3


def _refused_on(running: Command) -> str:
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "devstack",
            BACKENDS,
            f"--app={SHOP}",
            f"--settings={running.data.parent / 'settings.json'}",
        ],
        env={**os.environ, **ANY_PORTS, "DEVSTACK_DATA": str(running.data)},
        capture_output=True,
        text=True,
        check=False,
        timeout=40,
    )
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_a_taken_port_is_reported_before_anything_starts(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        line = _refused(tmp_path, BACKENDS, SERVICEBUS_ADMIN_PORT=str(port))
    assert f"port {port} is taken; stop what uses it, or set SERVICEBUS_ADMIN_PORT to a free port" in line
    assert not (tmp_path / "data").exists()


def test_bad_settings_are_one_line(tmp_path: Path) -> None:
    broken = tmp_path / "local.settings.json"
    broken.write_text("{")
    assert f"{broken}: not JSON at line 1" in _refused(tmp_path, f"--settings={broken}")
    assert "COSMOS_PORT is" in _refused(tmp_path, COSMOS_PORT="eighty")


@pytest.mark.long
def test_a_name_that_the_service_refuses_is_one_line(tmp_path: Path) -> None:
    line = _refused(tmp_path, BACKENDS, SHOP_CONTAINER="a/b")
    assert 'cannot make the container "a/b" in the database "shop": ' in line


@pytest.mark.long
def test_what_the_settings_point_elsewhere_is_not_run(tmp_path: Path) -> None:
    remote = "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=a;SharedAccessKey=b"
    with running_command(SHOP, tmp_path, BACKENDS, SERVICEBUS=remote) as running:
        assert alive_with(str(running.data / "servicebus")) == []
        assert len(alive_with(str(running.data / "cosmos"))) == 1
        assert "Service Bus  as the settings say" in running.output


@pytest.mark.long
def test_a_reader_that_goes_away_ends_it(tmp_path: Path) -> None:
    """As in ``make run | grep -q Ready``: nothing is written after that line, and still it is noticed."""
    settings = settings_file(SHOP, tmp_path)
    command = (
        f'"{sys.executable}" -m devstack {BACKENDS} "--app={SHOP}" "--settings={settings}" | grep -q ^Ready'
    )
    result = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        env={**os.environ, **ANY_PORTS, "DEVSTACK_DATA": str(tmp_path / "data")},
        capture_output=True,
        text=True,
        check=False,
        timeout=40,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert alive_with(str(tmp_path)) == []


@pytest.mark.long
async def test_the_app_runs_with_the_stacks_connections_and_its_own_settings(tmp_path: Path) -> None:
    with running_command(SHOP, tmp_path) as running:
        url = running.address("Functions")
        assert url.endswith("/api/hello")
        assert f"Try it:\n  curl -i {url}" in running.output
        assert "shop: orders, leases" in running.output
        assert "order-events: billing" in running.output
        async with aiohttp.ClientSession() as http, http.get(url) as answer:
            settings = await answer.json()
        assert settings["COSMOS"] == cosmos_connection(_port(running.address("Cosmos DB")))
        assert settings["SERVICEBUS"] == servicebus_connection(_port(running.address("Service Bus")))
        assert settings["GREETING"] == "hello"


@pytest.mark.long
async def test_who_cannot_wait_interrupts_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host has longer to end by itself than any test lasts."""
    monkeypatch.setattr(local_azure, "FUNCTIONS_GRACE_SECONDS", 10**6)
    environment = {**ANY_PORTS, "DEVSTACK_DATA": str(tmp_path / "data")}
    settings, log = read_settings(environment, SHOP, settings_file(SHOP, tmp_path)), tmp_path / "log"
    with log.open("w") as output:
        running = asyncio.create_task(supervisor._run_until_asked_to_stop(settings, Console(output)))
        await eventually(lambda: "\nReady " in log.read_text(), within=60)
        [host] = {*alive_with("devstack functions ")} & {*alive_with(str(tmp_path))}
        os.kill(host, signal.SIGSTOP)  # it will not end by itself
        os.kill(os.getpid(), signal.SIGINT)
        await eventually(lambda: "devstack   | stopping" in log.read_text())
        os.kill(os.getpid(), signal.SIGINT)
        await running
    assert alive_with(str(tmp_path)) == []


def test_without_a_devstack_toml_one_line_says_what_it_is_for(tmp_path: Path) -> None:
    (tmp_path / "local.settings.json").write_text('{"Values": {}}')
    ended = run_module("devstack", environment={**os.environ, **ANY_PORTS}, folder=tmp_path)
    assert ended.code == 2
    assert ended.err.startswith(
        f"{tmp_path / 'devstack.toml'} is not there: it says what to make for the app"
    )
    assert ended.err.count("\n") == 1
