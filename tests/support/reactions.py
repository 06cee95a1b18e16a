"""Heaps that messages put marks on: a mark that is there twice was put there twice."""

import sys
from collections.abc import Generator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Literal
from uuid import uuid4

from azure.cosmos.aio import CosmosClient

from cosmos_outbox import Aggregate, AggregateState, DomainEvent, Timestamp, WireModel
from cosmos_outbox.cosmos.aggregates.aggregates import Aggregates
from cosmos_outbox.cosmos.aggregates.unit_of_work import CosmosUnitOfWork, Lifetimes
from cosmos_outbox.cosmos.inbox.reaction_decision import InOrder
from cosmos_outbox.cosmos.inbox.reactions import CosmosReactions, ReactionInbox
from cosmos_outbox.cosmos.transaction import OnCommit
from cosmos_outbox.inbox.errors import InboxError, ReactionRefused
from cosmos_outbox.inbox.message import Event
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.aggregate import Origin
from tests.support.losses import Failing, Fate, Loss, ProcessDied


def no_loss() -> Fate:
    """No write is lost."""
    return Fate(Loss.NOT_WRITTEN, sys.maxsize)


LIVES = timedelta(days=61)
_ATTEMPTS = 6


class Marks(WireModel):
    marks: tuple[str, ...] = ()


class HeapState(Marks, AggregateState):
    id: str
    created_at: Timestamp
    closed: bool = False
    deleted: bool = False


class Marked(DomainEvent):
    action: Literal["Marked"] = "Marked"
    heap_id: str
    mark: str


class Heap(Aggregate[HeapState]):
    aggregate_type: ClassVar[str] = "heap"
    state_type: ClassVar[type[AggregateState]] = HeapState
    created_event, created_payload = "HeapMade", Marks
    changed_events = {"deleted": "HeapDeleted", "closed": "HeapClosed"}  # noqa: RUF012 - as users write it

    @property
    def aggregate_id(self) -> str:
        return self.state.id

    @property
    def deleted(self) -> bool:
        return self.state.deleted

    @classmethod
    def make(cls, name: str, *marks: str) -> "Heap":
        return cls(HeapState(id=name, created_at=datetime.now(UTC), marks=marks), is_new=True)

    def put(self, mark: str, at: datetime) -> None:
        self._raise(
            lambda n: Marked(heap_id=self.state.id, mark=mark, sequence=n, created_at=at),
            marks=(*self.state.marks, mark),
        )

    def become(self, *marks: str) -> None:
        at = datetime.now(UTC)
        self._raise(lambda n: Marked(heap_id=self.state.id, mark="", sequence=n, created_at=at), marks=marks)

    def close(self, *, closed: bool = True) -> None:
        self._set("closed", closed, datetime.now(UTC))

    def delete(self) -> None:
        self._set("deleted", True, datetime.now(UTC))


def put_mark(heap: Heap | None, event: Event) -> Heap | None:
    """An open heap takes a mark; one that is not there is made where the message says so."""
    if heap is None:
        if not event.data.get("makes"):
            raise ReactionRefused("there is no such heap")
        return Heap.make(event.data["heap"], event.data["mark"])
    if heap.state.closed:
        raise ReactionRefused("the heap is closed")
    for _ in range(event.data.get("times", 1)):
        heap.put(event.data["mark"], event.created_at)
    return None


def message_for(heap: str, mark: str, sequence: int | None = 1, **data: Any) -> Event:
    """A message for a heap."""
    message_for = {"heap": heap, "mark": mark, "correlationId": "request-7", **data}
    return Event(
        str(uuid4()),
        AggregateKey("offer", "o-1"),
        "OfferMade",
        sequence,
        datetime.now(UTC),
        message_for,
        source="/offers",
    )


@dataclass
class Clock:
    """A clock that is so many seconds ahead."""

    later: timedelta = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.later


@dataclass
class Heaps:
    """A container of heaps, and any number of instances with a reaction over it, whose replicas lag."""

    client: CosmosClient
    names: tuple[str, str]
    order: InOrder = InOrder.ANY
    fate: Fate = field(default_factory=no_loss)
    clock: Clock = field(default_factory=Clock)
    on_commit: OnCommit = field(default_factory=OnCommit)

    def container(self) -> Failing:
        made = Failing(self.client, *self.names)
        made.fate = self.fate
        return made

    def instance(self) -> ReactionInbox[Heap]:
        """Another process: it has no session."""
        lifetimes = Lifetimes(600, 600, int(LIVES.total_seconds()))
        reactions = CosmosReactions(
            self.container(), Heap, "marks", self.order, lifetimes, self.on_commit, self.clock
        )
        return ReactionInbox(reactions, lambda event: event.data["heap"], put_mark, self.clock)

    def aggregates(self) -> Aggregates:
        container = self.container()
        container.fate = no_loss()

        def open_unit_of_work(origin: Origin) -> CosmosUnitOfWork:
            return CosmosUnitOfWork(container, "test", origin, Lifetimes(600, 600))

        unused: Any = None
        return Aggregates(open_unit_of_work, unused)

    async def made(self, *marks: str) -> str:
        """The id of a new heap."""
        name = str(uuid4())
        await self.aggregates().create(Heap.make(name, *marks), Origin("test"))
        return name

    async def change(self, name: str, change: Any) -> None:
        await self.aggregates().change(Heap, name, change, Origin("test"))

    async def marks(self, name: str) -> list[str]:
        found = await self.aggregates().read(Heap, name, Origin("test"), newest=True)
        return [*found.aggregate.state.marks]

    async def documents(self, name: str, kind: str) -> list[dict[str, Any]]:
        proxy = self.client.get_database_client(self.names[0]).get_container_client(self.names[1])
        found = [dict(item) async for item in proxy.query_items("SELECT * FROM c", partition_key=name)]
        return [item for item in found if item["type"] == kind]

    async def until_done(self, message: Event) -> None:
        """The broker brings a message again that was not done, to whichever process is there."""
        inbox = self.instance()
        for _ in range(_ATTEMPTS):
            try:
                return await inbox.handle(message)
            except ProcessDied:
                inbox = self.instance()
            except ReactionRefused:
                raise
            except InboxError:
                pass
        raise AssertionError("never done")


@dataclass
class CutOff:
    """A coroutine of a process that dies at its n-th await."""

    coroutine: Any
    at: int

    def __await__(self) -> Generator[Any, Any, Any]:
        running = self.coroutine.__await__()
        step: Any = running.send
        given: Any = None
        for number in range(10_000):
            if number == self.at:  # what it holds is let go of, as the system does for a process that is gone
                step, given = running.throw, ProcessDied()
            try:
                waits_for = step(given)
            except StopIteration as done:
                return done.value
            try:
                step, given = running.send, (yield waits_for)
            except BaseException as error:  # noqa: BLE001 - what it waited for has failed: that is the coroutine's
                step, given = running.throw, error
        raise AssertionError("it never ends")
