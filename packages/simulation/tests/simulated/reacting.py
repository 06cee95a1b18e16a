"""A service whose piles put marks on heaps: all on one, in any order; each on two of its own, in order; and each on
two of them at once."""

from collections.abc import Mapping
from datetime import datetime
from random import Random
from typing import Any, ClassVar
from uuid import uuid4

from cosmos_outbox import Aggregate, AggregateState, Event, Names, Service, Timestamp, WireModel
from cosmos_outbox.kernel.clock import randomness
from outbox_simulation import Commands
from outbox_simulation.engine.redeclared import raise_no_exception
from tests.support.reactions import Heap


class Size(WireModel):
    size: int


class PileState(Size, AggregateState):
    id: str
    created_at: Timestamp


class Pile(Aggregate[PileState]):
    aggregate_type: ClassVar[str] = "pile"
    state_type: ClassVar[type[AggregateState]] = PileState
    created_event, created_payload = "PileMade", Size
    changed_events: ClassVar[Mapping[str, str]] = {"size": "PileGrown"}

    @property
    def aggregate_id(self) -> str:
        return self.state.id

    def grow(self, by: int, at: datetime) -> None:
        self._set("size", self.state.size + by, at)


service = Service("piles", [Pile, Heap], Names(database="piles", container="piles", topic="pile-events"))


_ENDS_THE_PROCESS = 0.03
"""How often a handler raises what is no ``Exception``: the message is tried again, and the process goes on."""


def _react(order: Any) -> None:
    def target(event: Event) -> str:
        return f"{order}-{'one' if order == 'any' else event.aggregate.id}"

    @service.reaction(f"marks-{order}", of=Pile, to=Heap, target=target, order=order)
    def put(heap: Heap | None, event: Event) -> Heap | None:
        if randomness().random() < _ENDS_THE_PROCESS:
            raise_no_exception()
        mark = event.aggregate.id if order == "any" else str(event.data["size"])
        if heap is None:
            return Heap(
                Heap.make(target(event), mark).state.model_copy(update={"created_at": event.created_at}),
                is_new=True,
            )
        heap.put(mark, event.created_at)
        return None


for _order in ("any", "each", "newest"):
    _react(_order)


def _two(event: Event) -> list[str]:
    return [f"newest-{event.aggregate.id}", "any-one"]


@service.reaction("marks-two", of=Pile, to=Heap, target=_two, order="any")
def put_on_two(heap: Heap | None, event: Event) -> None:
    if heap is not None:
        heap.put(event.id, event.created_at)


def commands() -> Commands[Pile]:
    def make(luck: Random, at: datetime) -> Pile:
        return Pile(PileState(id=str(uuid4()), created_at=at, size=luck.randint(1, 9)), is_new=True)

    def grow(pile: Pile, luck: Random, at: datetime) -> None:
        pile.grow(luck.randint(1, 9), at)

    return Commands(Pile, create=make, change=[grow])


def first_of_a_pile() -> dict[str, Any]:
    """The document of the first event of the pile ``p``."""
    data = {"id": "p-1", "action": "PileGrown", "sequence": 1}
    return {"id": "p-1", "partitionKey": "p", "type": "domainEvent", "aggregateType": "pile", "data": data}
