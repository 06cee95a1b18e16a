"""Everything that must survive the process goes through here, in the order in which it happened."""

from typing import Protocol

from devstack.servicebus.broker.message import Message


class Journal(Protocol):
    """Takes changes; what it took becomes durable together, before any client hears of it."""

    def put(self, entity: int, message: Message) -> None:
        """Store a message, or what changed of it."""

    def remove(self, entity: int, sequence: int) -> None:
        """Forget a message."""

    def sequence(self, entity: int, following: int) -> None:
        """The next sequence number that the entity will give."""

    def seen(self, entity: int, key: str, at_ms: int) -> None:
        """A message with this key was accepted at this time."""

    def forget_seen(self, entity: int, before_ms: int) -> None:
        """Keys first accepted before this time no longer matter."""

    def session_state(self, entity: int, session: str, state: bytes | None, at_ms: int) -> None:
        """A session's state was set; None clears it."""
