"""Which aggregates can be erased, and what is left of one, is declared by whoever knows what is personal in them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypeVar

from cosmos_outbox.outbox.aggregate import STORED, Aggregate, AggregateState

A_contra = TypeVar("A_contra", bound=Aggregate[Any], contravariant=True)


class Delete(Protocol[A_contra]):
    """Deletes a living aggregate, and raises the event of that: a method of its class, say."""

    def __call__(self, aggregate: A_contra, /, *, at: datetime) -> None: ...


@dataclass(frozen=True)
class Erasable:
    """Aggregates of one type, whose data can be erased."""

    kind: type[Aggregate[Any]]
    delete: Delete[Any]
    remains: Callable[[Any], AggregateState]
    """The state without what is personal: an id, a sequence, and what every version must find to read it."""
    kept: frozenset[str]
    """Events that hold nothing personal, such as that of the deletion: a subscriber may still need them."""

    def __post_init__(self) -> None:
        if self.kind.partition_key is not Aggregate.partition_key:
            raise ValueError(
                f"{self.kind.__name__} shares its partition with other aggregates, and erasing empties a whole one: "
                "only an aggregate whose partition key is its id can be declared"
            )

    @property
    def aggregate_type(self) -> str:
        """The type."""
        return self.kind.aggregate_type

    def data(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """What is left of a stored ``data``."""
        state = self.kind.state_type.model_validate(stored, by_alias=True, by_name=False, context=STORED)
        return self.remains(state).model_dump(mode="json", by_alias=True)
