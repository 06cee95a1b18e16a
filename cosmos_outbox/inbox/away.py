"""Whether a store is away for one aggregate or for all: so many in a row that find it away stand for all of them.

One aggregate alone can find it away: its partition is throttled or full, or a replica does not catch up.
"""

from dataclasses import dataclass

from cosmos_outbox.inbox.errors import StoreAway


@dataclass
class Away:
    """The aggregates in a row that found the store away, in the order in which they were answered."""

    at: int
    """How many in a row stand for all. Enough that so many, each for itself, are not met one after the other."""
    in_a_row: int = 0
    error: StoreAway | None = None
    """What the last one of all was told; None: none found the store away."""

    def answered(self) -> None:
        """The store has answered for an aggregate."""
        self.in_a_row = 0

    def found(self, error: StoreAway) -> None:
        """An aggregate found the store away."""
        self.in_a_row, self.error = self.in_a_row + 1, error

    @property
    def for_all(self) -> bool:
        """Whether the next aggregate need not be asked for."""
        return self.in_a_row >= self.at
