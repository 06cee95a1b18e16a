"""The stack as one process tree: how it comes up, stops, heals and refuses. Without the host it is faster."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from azure.cosmos.aio import ContainerProxy, CosmosClient

from devstack.settings import cosmos_connection
from tests.devstack.supervisor.process_table import alive_with
from tests.devstack.supervisor.stacks import ANY_PORTS, RunningStack, settings_file, stack
from tests.support.eventually import eventually
from tests.support.processes import ROOT

BACKENDS = "--no-functions"


def _port(address: str) -> int:
    return int(address.rstrip("/").rpartition(":")[2])


def _client(running: RunningStack) -> CosmosClient:
    return CosmosClient.from_connection_string(cosmos_connection(_port(running.address("Cosmos DB"))))


def _contacts(client: CosmosClient) -> ContainerProxy:
    return client.get_database_client("contacts").get_container_client("contacts")


def _item(text: str) -> dict[str, str]:
    return {"id": text, "partitionKey": "p"}


def _refused(folder: Path, *arguments: str, **environment: str) -> str:
    """The one line with which a stack does not start."""
    if not any(argument.startswith("--settings") for argument in arguments):
        arguments = (*arguments, f"--settings={settings_file(folder)}")
    result = subprocess.run(
        [sys.executable, "-m", "devstack", *arguments],
        cwd=ROOT,
        env={**os.environ, **ANY_PORTS, "DEVSTACK_DATA": str(folder / "data"), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=40,
    )
    assert result.returncode == 2, result.stdout + result.stderr
    assert result.stderr.count("\n") == 1
    assert alive_with(str(folder)) == []
    return result.stderr


def test_it_stops_in_time_and_leaves_no_process(tmp_path: Path) -> None:
    with stack(tmp_path, BACKENDS) as running:
        ports = [_port(running.address("Cosmos DB")), _port(running.address("Service Bus"))]
        assert len(running.processes()) == 3
        assert running.end(signal.SIGINT) == 0
        assert running.stop_seconds < 5
        assert running.processes() == []
    for port in ports:
        with socket.socket() as client:
            assert client.connect_ex(("127.0.0.1", port)) != 0


def test_it_can_be_stopped_while_it_starts(tmp_path: Path) -> None:
    running = RunningStack(tmp_path, BACKENDS)
    running.wait_for("devstack   | settings")
    assert running.end() == 0
    assert running.stop_seconds < 5
    assert running.processes() == []
    assert not any(line.startswith("Ready") for line in running.lines)


async def test_a_supervisor_that_is_killed_takes_its_services_along(tmp_path: Path) -> None:
    with stack(tmp_path, BACKENDS) as running:
        assert running.end(signal.SIGKILL) == -signal.SIGKILL
        await eventually(lambda: running.processes() == [], within=5)


async def test_a_service_that_was_killed_is_back_with_its_data(tmp_path: Path) -> None:
    with stack(tmp_path, BACKENDS) as running:
        async with _client(running) as client:
            await _contacts(client).create_item(_item("before"))
            pid = running.process_of("cosmos")
            os.kill(pid, signal.SIGKILL)
            await eventually(lambda: "cosmos is back on" in running.output)
            assert "cosmos was ended by SIGKILL; it is started again" in running.output
            assert running.process_of("cosmos") != pid
            await _contacts(client).read_item("before", "p")


async def test_data_survives_a_restart_of_the_whole_stack(tmp_path: Path) -> None:
    with stack(tmp_path, BACKENDS) as running:
        async with _client(running) as client:
            await _contacts(client).create_item(_item("kept"))
        assert running.end(signal.SIGTERM) == 0
    with stack(tmp_path, BACKENDS) as running:
        async with _client(running) as client:
            await _contacts(client).read_item("kept", "p")
        assert running.end(signal.SIGHUP) == 0
        assert running.processes() == []


async def test_two_stacks_side_by_side_do_not_meet(tmp_path: Path) -> None:
    with stack(tmp_path / "one", BACKENDS) as one, stack(tmp_path / "two", BACKENDS) as two:
        async with _client(one) as first, _client(two) as second:
            await _contacts(first).create_item(_item("mine"))
            found = [item["id"] async for item in _contacts(second).read_all_items()]
            assert found == []
        # And not on one folder: the second is refused, the first goes on.
        assert "is in use by another process" in _refused_on(one)
        assert len(one.processes()) == 3


def _refused_on(running: RunningStack) -> str:
    result = subprocess.run(
        [sys.executable, "-m", "devstack", BACKENDS, f"--settings={running.data.parent / 'settings.json'}"],
        cwd=ROOT,
        env={**os.environ, **ANY_PORTS, "DEVSTACK_DATA": str(running.data)},
        capture_output=True,
        text=True,
        check=False,
        timeout=40,
    )
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_a_taken_port_is_told_before_anything_starts(tmp_path: Path) -> None:
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


def test_a_name_that_the_service_refuses_is_one_line(tmp_path: Path) -> None:
    line = _refused(tmp_path, BACKENDS, COSMOS_CONTAINER="a/b")
    assert (
        'cannot make the database "contacts" and its containers "a/b", "leases" and "parked-events": ' in line
    )


def test_what_the_settings_point_elsewhere_is_not_run(tmp_path: Path) -> None:
    remote = "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=a;SharedAccessKey=b"
    with stack(tmp_path, BACKENDS, SERVICEBUS=remote) as running:
        assert alive_with(str(running.data / "servicebus")) == []
        assert len(alive_with(str(running.data / "cosmos"))) == 1
        assert "Service Bus  as the settings say" in running.output


def test_a_reader_that_goes_away_ends_it(tmp_path: Path) -> None:
    """As in ``make run | grep -q Ready``: nothing is written after that line, and still it is noticed."""
    settings = settings_file(tmp_path)
    command = f'"{sys.executable}" -m devstack {BACKENDS} "--settings={settings}" | grep -q ^Ready'
    result = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        cwd=ROOT,
        env={**os.environ, **ANY_PORTS, "DEVSTACK_DATA": str(tmp_path / "data")},
        capture_output=True,
        text=True,
        check=False,
        timeout=40,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert alive_with(str(tmp_path)) == []
