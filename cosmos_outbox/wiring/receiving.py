"""What receives a subscriber's messages, whatever the transport."""

import asyncio
from dataclasses import dataclass
from typing import Protocol

from cosmos_outbox.inbox.deliveries import Collected, Keep, Receive
from cosmos_outbox.settings.transports import Transport
from cosmos_outbox.telemetry.work import Work


class DeadLettered(Protocol):
    """The messages of a subscription that the broker has given up."""

    async def collect(self, keep: Keep, *, seconds: float) -> Collected:
        """Move what is there into records; receives nothing more after so many seconds. Raises StoreAway."""


class Arriving(Protocol):
    """The messages of a subscription."""

    async def serve(self, receive: Receive, stop: asyncio.Event, work: Work, *, slots: int) -> None:
        """Handle messages until ``stop`` is set; then return as soon as the messages in hand are handled."""


@dataclass(frozen=True)
class Queues:
    """What the broker holds for one subscription."""

    dead_letters: DeadLettered
    sessions: Arriving
    """For a subscriber outside Functions, which has no trigger."""


class Received(Protocol):
    """The settings by which messages are received."""

    @property
    def transport(self) -> Transport: ...
    @property
    def event_ttl_seconds(self) -> int: ...
