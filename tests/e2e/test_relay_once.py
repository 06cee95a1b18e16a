"""A relay that drains ends by itself, and its exit code says whether all is forwarded that was stored."""

import asyncio
from collections.abc import Mapping

import pytest

from devstack.testing import Service
from tests.e2e.test_relay_worker import create, leases_of
from tests.support import command
from tests.support.deployed import deployed
from tests.support.use_cases import contacts_of

pytestmark = pytest.mark.own_stack

ALL = "all is forwarded that was stored at the start"


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
