"""The port to the committed documents: what is published is what was committed, whichever host delivers the feed.

A host may hand over a document whose texts the host has written anew, such as texts that look like dates. So a
delivered event is compared with a digest that was committed with the event. Where the digest does not fit, the
committed document is read again.
"""

from collections.abc import Sequence
from typing import Protocol

from cosmos_outbox.outbox.feed import FeedEvent


class Originals(Protocol):
    """The events as they were committed."""

    async def verify(self, events: Sequence[FeedEvent]) -> list[FeedEvent]:
        """The same events in the same order, each as it was committed.

        An event comes back as Poison when its original is proven gone or does not fit its digest either, and as Unread
        when its original cannot be read just now. A store that is away is no error here.
        """

    def forget(self, events: Sequence[FeedEvent]) -> None:
        """What was read of these events is not used again: they are done, or are to be read anew."""


class AsDelivered:
    """For a host that hands over what is stored, byte for byte: nothing is compared."""

    async def verify(self, events: Sequence[FeedEvent]) -> list[FeedEvent]:
        """The events as they came."""
        return list(events)

    def forget(self, events: Sequence[FeedEvent]) -> None:
        """Nothing was kept."""
