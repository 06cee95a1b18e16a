"""Reads stored events in the order in which the store wrote them, a window of seconds at a time.

The order is by ``_ts``, the time of the write: it is a number, indexed in every container, and of one clock, while
``createdAt`` is a text of the writer's clock. All documents of a transaction have one ``_ts``. So an aggregate's events
change their order between two windows only if a document was written again, or the store's clock went back. Within a
window they are sorted by sequence. ``_ts`` does not show whether the relay has forwarded an event
(:mod:`cosmos_outbox.cli.republish`). A query that is ordered over several partitions returns no continuation token: the
next window begins at the last second that was seen.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cosmos_outbox.cosmos.aggregates.documents import EVENT_TYPE, EventReader
from cosmos_outbox.cosmos.store.container import Container, StoreFailed
from cosmos_outbox.cosmos.store.partition_key import Item
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.feed import FeedEvent

_EVENTS = "SELECT * FROM c WHERE c.type = @type AND c._ts >= @since AND c._ts < @to"
_IN_ORDER = " ORDER BY c._ts"

AT_ONCE = 200
"""The number of documents in a window; more if more were written within one second."""


@dataclass(frozen=True)
class Span:
    """The events that were stored in ``[since, to)``, in seconds since 1970 by the store's clock."""

    since: int
    to: int
    aggregate: AggregateKey | None = None
    """The aggregate of the events; None: all aggregates."""


@dataclass(frozen=True)
class Window:
    """All events that were stored from the beginning of a span until ``end``."""

    events: Sequence[FeedEvent]
    end: int


@dataclass(frozen=True)
class CosmosEventHistory:
    """The stored events that have not expired."""

    container: Container
    events: EventReader
    session_token: str
    """The token of all physical partitions: the read misses nothing stored before it, whatever replica answers."""
    at_once: int = AT_ONCE

    async def window(self, span: Span) -> Window:
        """Returns the first events of the span: a few, or all of one second.

        Raises Throttled, Unavailable or Misconfigured.
        """
        try:
            items, _ = await self._page(span, _IN_ORDER, None)
            if not items:
                return Window([], span.to)
            first, last = items[0]["_ts"], items[-1]["_ts"]
            if first < last:  # more may have been written in the last second than the page holds
                return self._window([item for item in items if item["_ts"] < last], span, last)
            second = Span(first, first + 1, span.aggregate)
            return self._window(await self._all(second), span, first + 1)
        except StoreFailed as error:
            raise error.failure.error() from error

    def _window(self, items: list[Item], span: Span, end: int) -> Window:
        # Without the feed's _lsn, an event that has no sequence gets its place by the time of its transaction.
        found = self.events.events([item | {"_lsn": item["_ts"]} for item in items])
        if span.aggregate is not None:
            found = [event for event in found if event.aggregate == span.aggregate]
        return Window(found, end)

    async def _all(self, span: Span) -> list[Item]:
        found: list[Item] = []
        token: str | None = None
        while True:
            items, token = await self._page(span, "", token)
            found += items
            if token is None:
                return found

    async def _page(self, span: Span, order: str, token: str | None) -> tuple[list[Item], str | None]:
        query, parameters = _EVENTS, _parameters(span)
        if span.aggregate is not None:
            of_one = self.events.paths.of_aggregate("c", "@id")
            query, parameters = f"{query} AND {of_one}", parameters | {"@id": span.aggregate.id}
        return await self.container.page_behind(
            self.session_token, query + order, parameters, self.at_once, token
        )


def _parameters(span: Span) -> dict[str, Any]:
    return {"@type": EVENT_TYPE, "@since": span.since, "@to": span.to}
