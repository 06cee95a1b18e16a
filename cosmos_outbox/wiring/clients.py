"""What a service reaches is made in one place: the SDKs' clients, or what stands for them in a simulation."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

from cosmos_outbox.cosmos.store.client import CosmosClient, cosmos_client
from cosmos_outbox.outbox.publisher import Publisher
from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.settings.credentials import Credential
from cosmos_outbox.settings.environment import Settings
from cosmos_outbox.wiring import transports
from cosmos_outbox.wiring.receiving import Queues, Received


@dataclass(frozen=True)
class Clients:
    """How a service reaches the store and the broker. Each is called when it is first needed, and opens nothing."""

    cosmos: Callable[[Connection, Credential | None], CosmosClient] = cosmos_client
    publisher: Callable[[Settings, str, AsyncExitStack], Publisher] = transports.publisher
    queues: Callable[[Received, AsyncExitStack, str], Queues] = transports.queues


SDKS = Clients()
"""Those of a deployed service."""
