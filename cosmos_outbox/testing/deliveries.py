"""Delivers messages to subscribers with the deployed code, over stores in memory.

A wait for a store, or a pause between two attempts, moves the test's clock ahead instead.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from pydantic import BaseModel

from cosmos_outbox.composition.declarations import ReadModelDeclaration, Subscriber
from cosmos_outbox.inbox.entry import Entry
from cosmos_outbox.inbox.message import Delivery
from cosmos_outbox.inbox.set_aside import Record
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import using
from cosmos_outbox.operations.subscriber import Subscription
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.testing.clock import Clock
from cosmos_outbox.testing.messages import Message, message_of

S = TypeVar("S", bound=BaseModel)

_UPKEEP_SECONDS = 60.0
_MOST_RECORDS = 1000
_MOST_ROUNDS = 1000


class Deliveries:
    """The subscribers of one service, and the messages that were delivered to them."""

    def __init__(self, subscriptions: Mapping[str, Subscription], clock: Clock) -> None:
        self.subscriptions = subscriptions
        self.clock = clock
        self._delivered: set[str] = set()
        self._messages = 0
        self._known: set[str] | None = None
        """The records that were open after the last delivery; None: read them again."""

    async def deliver(self, *given: OutboxEvent | Message, to: Subscriber | None = None) -> Sequence[Record]:
        """Deliver these events and messages, in this order; without any, all stored events until none is left.

        ``to``: one read model or effect; by default all of them. Returns the records of those that could not be
        applied and were set aside, each with its reason. Raises StoreUnavailable: an effect's service is away for all
        (EffectUnavailable), so that the message is not done, and is delivered again by the next call. Raises
        RuntimeError: the reactions raise events without end.
        """
        known = {record.id for record in await self.set_aside()} if self._known is None else self._known
        self._known = None  # unless this ends well
        waiting: Sequence[OutboxEvent | Message] = given or self._waiting()
        for _ in range(_MOST_ROUNDS):
            for each in waiting:
                await self._deliver(message_of(each) if isinstance(each, OutboxEvent) else each, to)
            waiting = () if given else self._waiting()
            if not waiting:
                break
        else:
            raise RuntimeError(
                f"reactions raised events after {_MOST_ROUNDS} rounds: they answer each other for ever"
            )
        records = await self.set_aside()
        self._known = {record.id for record in records}
        return [record for record in records if record.id not in known]

    async def _deliver(self, message: Message, to: Subscriber | None) -> None:
        self._messages += 1
        for subscription in self._of(to):
            received = Delivery(
                subscription.subscriber.subscription,
                message.id,
                self._messages,
                message.body,
                message.properties,
            )
            with using(self.clock.sources()):
                await subscription.subscriber.receiver.receive(received)
        self._delivered.add(message.id)

    def _waiting(self) -> Sequence[OutboxEvent]:
        return [event for event in self._stored() if event.id not in self._delivered]

    async def upkeep(self) -> None:
        """Run the timers' work: retry messages that were set aside. Raises StoreUnavailable."""
        self._known = None
        with using(self.clock.sources()):
            for subscription in self._of(None):
                await subscription.subscriber.retrier.run(seconds=_UPKEEP_SECONDS)

    async def entry(self, of: ReadModelDeclaration[S], aggregate_id: str) -> Entry[S] | None:
        """The entry that a read model has of an aggregate; of a deleted one the ``state`` is None."""
        model = self.subscriptions[of.name].read_model
        assert model is not None, "a read model's subscription keeps it"
        found = await model.inbox.entries.newest(AggregateKey(of.aggregate_type, aggregate_id))
        return None if found is None else found.entry

    async def set_aside(self, of: Subscriber | None = None) -> Sequence[Record]:
        """Returns the records of messages that one subscriber, or any, could not apply: waiting or refused."""
        return [
            record
            for subscription in self._of(of)
            for record in (await subscription.subscriber.retrier.page(_MOST_RECORDS, None)).items
        ]

    def _of(self, one: Subscriber | None) -> Iterator[Subscription]:
        if one is None:
            yield from self.subscriptions.values()
        else:
            yield self.subscriptions[one.name]

    def _stored(self) -> Sequence[OutboxEvent]:
        """Returns the stored events, which :meth:`deliver` delivers by default."""
        return []
