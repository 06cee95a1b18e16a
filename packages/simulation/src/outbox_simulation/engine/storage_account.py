"""A storage account as the service has it: queues whose messages are hidden and come back.

Nothing here waits or fails by chance: the caller passes the time, and
:mod:`outbox_simulation.engine.storage_queues` has the faults of a request. A received message is hidden, not gone; the
holder of its newest receipt may renew, delete or release it. It is counted each time that it is received.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count

FOR_EVER = -1
"""The time to live of a message that never expires."""
_SEVEN_DAYS = 604_800
"""The default time to live."""


class Answers(Exception):
    """The service answers with an error: its status and its error code."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(f"{status} {code}")
        self.status, self.code = status, code


@dataclass(eq=False)
class HeldMessage:
    """A message in a queue."""

    id: str
    text: str
    since: float
    until: float
    """The time when it expires."""
    visible: float
    """The time from which it can be received."""
    receipt: str = ""
    """The newest receipt; empty: it was never received."""
    dequeued: int = 0


@dataclass
class StorageQueueInMemory:
    """One queue."""

    name: str
    new_id: Callable[[], str]
    messages: list[HeldMessage] = field(default_factory=list)

    def put(self, text: str, now: float, *, ttl: int = _SEVEN_DAYS, hidden: float = 0.0) -> HeldMessage:
        """Adds a message at the end of the queue."""
        until = float("inf") if ttl == FOR_EVER else now + ttl
        held = HeldMessage(self.new_id(), text, now, until, now + hidden)
        self.messages.append(held)
        return held

    def get(
        self,
        most: int,
        now: float,
        hidden: float,
        order: Callable[[list[HeldMessage]], Iterable[HeldMessage]],
    ) -> Sequence[HeldMessage]:
        """Returns so many visible messages. ``order``: draws the order in which the service returns them."""
        self._expire(now)
        found = [*order([each for each in self.messages if each.visible <= now])][:most]
        for each in found:
            each.dequeued += 1
            self._hide(each, now + hidden)
        return found

    def update(self, name: str, receipt: str, now: float, hidden: float) -> HeldMessage:
        """Hides a message for so long from now on, under a new receipt. Raises Answers."""
        held = self._held(name, receipt, now)
        self._hide(held, now + hidden)
        return held

    def delete(self, name: str, receipt: str, now: float) -> HeldMessage:
        """Deletes a message. Raises Answers."""
        held = self._held(name, receipt, now)
        self.messages.remove(held)
        return held

    def count(self, now: float) -> int:
        """Returns the number of messages, hidden ones too."""
        self._expire(now)
        return len(self.messages)

    def _held(self, name: str, receipt: str, now: float) -> HeldMessage:
        self._expire(now)
        held = next((each for each in self.messages if each.id == name), None)
        if held is None:
            raise Answers(404, "MessageNotFound")
        if held.receipt != receipt:
            raise Answers(400, "PopReceiptMismatch")
        return held

    def _hide(self, held: HeldMessage, until: float) -> None:
        held.visible, held.receipt = until, self.new_id()

    def _expire(self, now: float) -> None:
        if any(each.until <= now for each in self.messages):
            self.messages = [each for each in self.messages if each.until > now]


class StorageAccount:
    """The queues of one account. It creates a queue when it is first named, as a deployment has done."""

    def __init__(self) -> None:
        self.queues: dict[str, StorageQueueInMemory] = {}
        self._numbers = count(1)

    def queue(self, name: str) -> StorageQueueInMemory:
        """Returns a queue by its name."""
        return self.queues.setdefault(name, StorageQueueInMemory(name, lambda: f"n{next(self._numbers)}"))
