"""What is done with a message that was received, and with one that the broker gave up: the same over all brokers."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from cosmos_outbox.inbox.set_aside import Delivery

Receive = Callable[[Delivery], Awaitable[None]]
"""Handles a message. Raises StoreAway, after a wait: the message is given back."""

Keep = Callable[[Delivery, str], Awaitable[None]]
"""Stores the record of a message, with the reason for which it became a dead letter."""


@dataclass(frozen=True)
class Collected:
    """What one collecting did."""

    messages: int
    emptied: bool
    """Whether the queue was seen to be empty at the end; False: what is left in it is not known."""
