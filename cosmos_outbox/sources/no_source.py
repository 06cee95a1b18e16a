"""Declares that a subscriber may not read its publisher: a gap is reported, and closed by publishing again."""

from dataclasses import dataclass
from typing import NoReturn

from cosmos_outbox.inbox.errors import SourceBehind
from cosmos_outbox.kernel.aggregate_key import AggregateKey


@dataclass(frozen=True)
class NoSource:
    """Declares that there is no source: an entry is made from an aggregate's first event, and from no other.

    What cannot be applied is set aside, and tried again until the publisher has published the missing events again. So
    the projection gives an answer to every action, the state as it is to one that it does not need; it gets the notice
    of a discarded event too, and decides whether to go on without that event. Deleted entries are kept for good.
    Raise the form's ``version`` only where the publisher can publish all events again: an entry of another form is made
    anew from the first event, and until then its events wait.

    See :class:`cosmos_outbox.inbox.ports.Source`: there is nothing to read, and so nothing is ever proven.
    """

    async def read(self, key: AggregateKey) -> None:
        """Returns None, which proves nothing."""

    async def newest(self, key: AggregateKey) -> NoReturn:
        """Raises SourceBehind."""
        raise SourceBehind(
            f"events of {key} are missing, and this subscriber has no source to read: ask the publisher to publish the "
            "events of that time again"
        )
