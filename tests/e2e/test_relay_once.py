"""A relay that drains ends by itself, and its exit code says whether all is forwarded that was stored."""

import asyncio
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from devstack.testing import Service
from tests.e2e.conftest import stack
from tests.e2e.test_relay_worker import create, leases_of, service, settings
from tests.support import command
from tests.support.deployed import deployed, relaying
from tests.support.paths import ROOT
from tests.support.use_cases import contacts_of

pytestmark = pytest.mark.own_stack

ALL = "all is forwarded that was stored at the start"


def terminated(environment: Mapping[str, str], seconds: int) -> command.Ended:
    """The same, which gets SIGTERM after so long."""
    arguments = [
        "timeout",
        "--preserve-status",
        str(seconds),
        sys.executable,
        "-m",
        "cosmos_outbox",
        "relay",
        "--once",
    ]
    ended = subprocess.run(arguments, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return command.Ended(ended.returncode, ended.stdout, ended.stderr)


async def once(environment: Mapping[str, str], *arguments: str) -> command.Ended:
    return await asyncio.to_thread(
        command.run_command,
        "relay",
        "--once",
        *arguments,
        environment={**environment, "PATH": "/usr/bin:/bin"},
    )


async def test_it_ends_when_all_is_forwarded_whether_there_is_much_or_nothing(
    cosmos_server: Service, servicebus_server: Service
) -> None:
    async with deployed(cosmos_server, servicebus_server) as there:
        nothing = await once(there.environment)
        assert (nothing.code, nothing.out) == (
            0, f"relay: {ALL}; 0 event(s) forwarded by this relay\n"
        )  # fmt: skip

        ids = [await create(contacts_of(there.application)) for _ in range(10)]
        backlog = await once(there.environment)
        assert (backlog.code, backlog.out) == (0, f"relay: {ALL}; 10 event(s) forwarded by this relay\n")
        assert len(await there.topic.receive(str(ids[9]), 1)) == 1
        assert [lease["Owner"] for lease in await leases_of(there.database)] == [None]


@pytest.mark.long
async def test_it_waits_for_what_another_relay_forwards(
    cosmos_server: Service, servicebus_server: Service
) -> None:
    async with deployed(cosmos_server, servicebus_server) as there:
        contacts = contacts_of(there.application)
        async with relaying(there.environment):
            first = await create(contacts)
            assert len(await there.topic.receive(str(first), 1)) == 1
            await create(contacts)
            done = await once(there.environment)
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
        done = await asyncio.to_thread(terminated, {**settings(started), "PATH": "/usr/bin:/bin"}, 15)
        assert done.code == 1
        assert done.out.startswith("relay: events wait: the relay was asked to stop. ")
        assert "Service Bus cannot be reached" in done.out
        assert "Run the command again" in done.out

        started.servicebus.start()
        assert (await once(settings(started))).code == 0
