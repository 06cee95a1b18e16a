"""What a team chooses of an effect, as it is declared: data alone."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from cosmos_outbox.inbox.effect import Effect
from cosmos_outbox.inbox.event import utc
from cosmos_outbox.outbox.event import DomainEvent

On = Collection[type[DomainEvent] | str] | None
"""Events, by class or by name; None: all."""


@dataclass(frozen=True)
class Chosen:
    """What a subscriber chooses of its effect."""

    run: Effect
    kinds: frozenset[str] | None
    repeatable: bool
    begin: datetime | None

    @classmethod
    def of(cls, run: Effect, on: On, begin: datetime | None, *, repeatable: bool) -> "Chosen":
        """As it is declared."""
        named = (
            None if on is None else frozenset(each if isinstance(each, str) else each.__name__ for each in on)
        )
        return cls(run, named, repeatable, begin and utc(begin))
