"""What is declared of a service's events beside its transport: where else they go, and how their data is erased."""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from cosmos_outbox.outbox.aggregate import Aggregate, AggregateState
from cosmos_outbox.outbox.destination import Destination
from cosmos_outbox.outbox.erasable import Delete, Erasable
from cosmos_outbox.outbox.event import DomainEvent
from cosmos_outbox.settings.transports import LOADERS, Name
from cosmos_outbox.wiring.chosen import On

A = TypeVar("A", bound=Aggregate[Any])

_NAME = re.compile(r"(?=.{1,20}$)[a-z][a-z0-9]*(-[a-z0-9]+)*")
_TAKEN = frozenset({"archive"})
"""Its place in the feed would be the archive's."""


@dataclass(frozen=True)
class SendsTo:
    """Another destination, as it is declared."""

    of: Destination
    transport: Name


@dataclass(frozen=True)
class Publishing:
    """See :class:`cosmos_outbox.wiring.service.Service`."""

    erasables: list[Erasable] = field(default_factory=list, init=False)
    destinations: list[SendsTo] = field(default_factory=list, init=False)

    def sends_to(
        self,
        name: str,
        transport: Name,
        *,
        of: Sequence[type[Aggregate[Any]] | str] | None = None,
        on: On = None,
        begin: datetime | None = None,
    ) -> None:
        """Declare another destination of its events: a relay of its own, which no other one holds up.

        ``name``: of its settings (``PARTNER_WEBHOOK_URL`` of ``partner``), its place in the feed, its parked events and
        its functions: never change it. ``of``: aggregates; ``on``: events, by class or name; None: all. Where ``on``
        leaves events out, their sequences are missing there. ``begin``: what was raised earlier is not for it; None:
        a destination that is added later begins with the oldest event that is stored. Raises ValueError: it cannot be
        right.
        """
        if not _NAME.fullmatch(name) or name in _TAKEN:
            raise ValueError(
                f"a destination cannot be called {name!r}: take 1 to 20 lower-case letters and digits, with single "
                "dashes between them, a letter first, and not archive"
            )
        if any(each.of.name == name for each in self.destinations):
            raise ValueError(f"two destinations are called {name}: give each a name of its own")
        if transport not in LOADERS:
            raise ValueError(
                f"destination {name} has the transport {transport!r}: take one of {', '.join(LOADERS)}"
            )
        types = (
            None if of is None else [each if isinstance(each, str) else each.aggregate_type for each in of]
        )
        actions = None if on is None else [each if isinstance(each, str) else each.__name__ for each in on]
        for what, chosen in (("of", types), ("on", actions)):
            if chosen == []:
                raise ValueError(f"destination {name} is for no event: {what} is empty, leave it out for all")
        if unknown := set(types or ()) - self._types():
            raise ValueError(
                f"destination {name} is for aggregates that the service does not have: {', '.join(sorted(unknown))}"
            )
        destination = Destination(
            name,
            None if types is None else frozenset(types),
            None if actions is None else frozenset(actions),
            begin if begin is None or begin.tzinfo else begin.replace(tzinfo=UTC),
        )
        self.destinations.append(SendsTo(destination, transport))

    def erases(
        self,
        kind: type[A],
        *,
        delete: Delete[A],
        remains: Callable[[Any], AggregateState],
        kept: Collection[type[DomainEvent] | str] = (),
    ) -> None:
        """Declare that aggregates of a type can be erased: ``cosmos-outbox erase TYPE ID``.

        ``delete`` deletes a living one with its event; ``remains`` gives a deleted one's state without what is
        personal; ``kept`` names, by class or by name, the events with nothing personal in them, such as that of the
        deletion. All else is emptied wherever this service keeps it. Raises ValueError: the type shares partitions.
        """
        names = frozenset(each if isinstance(each, str) else each.__name__ for each in kept)
        self.erasables.append(Erasable(kind, delete, remains, names))

    def _types(self) -> set[str]:
        """Of its aggregates."""
        raise NotImplementedError
