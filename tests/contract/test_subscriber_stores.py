"""The subscriber's store in Cosmos DB does what the contract of stores says."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from cosmos_outbox.composition.declarations import Store
from cosmos_outbox.cosmos.inbox.store import CosmosDatabase
from cosmos_outbox.testing import SubscriberStoreContract
from devstack.testing import Service
from tests.support.azure import DIRECTORY, EFFECTS, SET_ASIDE, contacts_database
from tests.support.emulators import Gap


@pytest.mark.needs_a_socket("each test has a loop of its own")
@pytest.mark.known_gap(Gap.BATCH_IGNORES_ETAG)
class TestCosmosStore(SubscriberStoreContract):
    read_model, effect = DIRECTORY, EFFECTS
    server: Service

    @pytest.fixture(autouse=True)
    def _served(self, cosmos_server: Service) -> None:
        self.server = cosmos_server

    @asynccontextmanager
    async def opened(self, folder: Path) -> AsyncIterator[Store]:
        async with contacts_database(self.server) as database, AsyncExitStack() as resources:
            environment = {"COSMOS": self.server.connection_string, "COSMOS_DATABASE": database.id}
            yield CosmosDatabase(set_aside=SET_ASIDE).open(environment, resources)
