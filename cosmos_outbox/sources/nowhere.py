"""The source of a subscriber that may not read its publisher: a gap is reported until the events are republished."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NoReturn, TypeVar

from cosmos_outbox.inbox.errors import SourceBehind
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.kernel.aggregate_key import AggregateKey

S = TypeVar("S")


@dataclass(frozen=True)
class NoSource(Generic[S]):
    """Declares that there is no source: an entry is made only from an aggregate's first event.

    An event that cannot be applied is set aside, and retried until the publisher has published the missing events
    again. So the projection must return a state for every action, unchanged for one that it does not need; it gets the
    notice of a discarded event too, and decides whether to continue without that event. Deleted entries are kept for
    ever. Raise the form's ``version`` only if the publisher can publish all events again: an entry of another form is
    made anew from the first event, and until then its events wait.
    """

    first: Callable[[Event], S | None]
    """Returns the state that the first event holds; None: it holds none."""


class Nowhere(Generic[S]):
    """Implements :class:`cosmos_outbox.inbox.ports.Source` without anything to read, so it never proves anything."""

    async def read(self, key: AggregateKey) -> None:
        """Returns None, which proves nothing."""

    async def newest(self, key: AggregateKey) -> NoReturn:
        """Raises SourceBehind."""
        raise SourceBehind(
            f"events of {key} are missing, and this subscriber has no source to read: ask the publisher to publish the "
            "events of that time again"
        )
