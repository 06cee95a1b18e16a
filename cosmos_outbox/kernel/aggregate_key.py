"""The key of an aggregate, for outbox and inbox: its type and its id."""

from typing import NamedTuple


class AggregateKey(NamedTuple):
    """An aggregate's type and id; ids are unique within a type. A tuple, since the relay groups thousands of events."""

    type: str
    id: str

    def __str__(self) -> str:
        return f"{self.type} {self.id}"
