"""Provides Cosmos DB in memory under the real SDK and the library's own adapters: devstack answers without a socket.

Documents are written and read as JSON by the same requests as in Azure. A crash between two requests, replicas that
lag and time limits need a local Azure: :class:`cosmos_outbox.testing.LocalAzure`.
"""

import itertools
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from azure.cosmos.aio import CosmosClient

from cosmos_outbox.cosmos.store.client import cosmos_client
from cosmos_outbox.cosmos.store.container import Container, Write
from cosmos_outbox.cosmos.store.partition_key import Item, Key
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.settings.connections import Connection, Credential
from cosmos_outbox.testing.clock import Clock
from cosmos_outbox.testing.faults import Faults
from devstack import app_file, provision
from devstack.cosmos.in_memory import CosmosInMemory, in_memory
from devstack.cosmos.wire.auth import EMULATOR_KEY

_numbers = itertools.count(1)
_prepared: dict[str, bytes] = {}
"""The initial content of accounts by their declared containers, so that each test's own account is created quickly."""


@dataclass(frozen=True)
class MemoryAccount:
    """An account that belongs to one test."""

    cosmos: CosmosInMemory
    address: str
    """A unique address, since the SDK shares cached data of an address between clients."""

    @property
    def connection_string(self) -> str:
        """The value of the setting ``COSMOS``."""
        return f"AccountEndpoint={self.address};AccountKey={EMULATOR_KEY};"

    def client(self, connection: Connection, credential: Credential | None = None) -> CosmosClient:
        """Returns the library's own client of this account."""
        return cosmos_client(connection, credential, session=self.cosmos.session())

    async def make(self, declared: app_file.Cosmos) -> None:
        """Create the containers of a service. Raises ValueError: the account has some already."""
        form = declared.model_dump_json()
        if form in _prepared:
            self.cosmos.begin_with(_prepared[form])
            return
        async with self.client(Connection(self.connection_string)) as client:
            await provision.containers(client, declared)
        _prepared[form] = self.cosmos.content()


@contextmanager
def account(clock: Clock) -> Iterator[MemoryAccount]:
    """An empty account that uses the test's clock."""
    address = f"https://memory-{next(_numbers)}.invalid:443/"
    chance = random.SystemRandom()
    with in_memory(
        clock=lambda: clock().timestamp(), chance=chance, endpoint=address, partitions=1, dates_matter=False
    ) as made:
        yield MemoryAccount(made, address)


class FaultyContainer(Container):
    """A container whose calls raise a test's faults: the errors that callers would get after all attempts."""

    def __init__(self, faults: Faults, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._faults = faults

    async def read_with_age(self, item_id: str, partition_key: Key) -> tuple[Item, float] | None:
        """As its base."""
        self._faults.meet_read()
        return await super().read_with_age(item_id, partition_key)

    async def execute(self, partition_key: Key, writes: Sequence[Write]) -> list[str]:
        """As its base."""
        return await self._faults.meet_write(
            lambda: super(FaultyContainer, self).execute(partition_key, writes)
        )

    async def renew_token(self, partition_key: Key) -> None:
        """Do nothing: each read in memory is as new as the last write."""

    async def page(self, *arguments: Any, **options: Any) -> tuple[list[Item], str | None]:
        """As its base."""
        self._faults.meet_read()
        return await super().page(*arguments, **options)

    async def first(self, *arguments: Any, **options: Any) -> list[Item]:
        """As its base."""
        self._faults.meet_read()
        return await super().first(*arguments, **options)

    async def check(self) -> None:
        """As its base."""
        self._faults.meet_read()
        await super().check()
