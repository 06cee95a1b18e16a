"""What receives a subscriber's messages, whatever the transport."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from cosmos_outbox.settings.transports import Transport

if TYPE_CHECKING:
    from cosmos_outbox.servicebus.dead_letters import DeadLetters
    from cosmos_outbox.servicebus.sessions import Sessions


@dataclass(frozen=True)
class Queues:
    """What the broker holds for one subscription."""

    dead_letters: "DeadLetters"
    sessions: "Sessions"
    """For a subscriber outside Functions, which has no trigger."""


class Received(Protocol):
    """The settings by which messages are received."""

    @property
    def transport(self) -> Transport: ...
    @property
    def event_ttl_seconds(self) -> int: ...
