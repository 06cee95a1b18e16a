"""A missing event is believed of a read behind a fence alone.

The page is one query in the partition of the aggregate, by sequence: an event that is written meanwhile moves nothing.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cosmos_outbox.cosmos.aggregates.documents import EVENT_TYPE, EventReader
from cosmos_outbox.cosmos.store.container import Container, StoreFailed
from cosmos_outbox.cosmos.store.item import Item
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.lists import continuation
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.outbox.past_changes import LOOKED_BACK, PastPage, lowest_of_run

_PLACE = re.compile(r"[1-9][0-9]{0,14}")


@dataclass(frozen=True)
class EventsQuery:
    """The events of an aggregate with these sequences, in its partition."""

    of: AggregateKey
    places: range
    condition: str
    """That an event is of the aggregate with the id ``@id``."""

    def text(self, most: int) -> str:
        """The query. The sequence is not indexed, since each change would pay for it."""
        return (
            f"SELECT TOP {most} * FROM c WHERE c.type = @type AND {self.condition} "  # noqa: S608 - no caller's text
            "AND c.data.sequence >= @from AND c.data.sequence < @to"
        )

    @property
    def parameters(self) -> Mapping[str, Any]:
        """What a request decides."""
        return {
            "@type": EVENT_TYPE, "@id": self.of.id, "@from": self.places.start, "@to": self.places.stop
        }  # fmt: skip

    def among(self, items: Iterable[Item]) -> list[Item]:
        """The same of a store in memory, of whichever aggregates."""
        return [
            item
            for item in items
            if item.get("type") == EVENT_TYPE and (item.get("data") or {}).get("sequence") in self.places
        ]


@dataclass(frozen=True)
class CosmosPastChanges:
    """See :class:`cosmos_outbox.outbox.past_changes.PastChanges`. ``scope`` names the container in tokens."""

    container: Container
    events: EventReader
    scope: str

    async def page(self, key: AggregateKey, last: int, size: int, token: str | None) -> PastPage:
        """Events without a gap. Raises UnknownContinuation, Throttled, Unavailable, Misconfigured."""
        scope = f"{self.scope}/past of {key}"
        before = last + 1 if token is None else min(last + 1, _place(continuation.unseal(scope, token)))
        bottom = before - size
        found = await self._read(key, range(max(1, bottom - LOOKED_BACK), before), bottom)
        reached = lowest_of_run(before, found)
        lowest = max(bottom, reached)
        more = lowest > 1 and lowest == bottom
        return PastPage(
            [found[place] for place in reversed(range(lowest, before))],
            [found[place] for place in reversed(range(reached, lowest))],
            lowest,
            continuation.seal(scope, str(lowest)) if more else None,
        )

    async def _read(self, key: AggregateKey, places: range, bottom: int) -> Mapping[int, OutboxEvent]:
        """The events that there are: from the top or ``bottom`` on, none is missed."""
        try:
            found = await self._find(key, places)
            if max(bottom, places.start) < lowest_of_run(places.stop, found):
                await self.container.fence(key.id)
                found |= await self._find(key, places)
        except StoreFailed as error:
            raise error.failure.error() from error
        return found

    async def _find(self, key: AggregateKey, places: range) -> dict[int, OutboxEvent]:
        query = EventsQuery(key, places, self.container.paths.of_aggregate("c", "@id"))
        items = await self.container.select(query, 2 * len(places), key.id) if places else []
        read = [each for each in self.events.events(items) if isinstance(each, OutboxEvent)]
        return {each.sequence: each for each in read if each.aggregate == key and each.sequence is not None}


def _place(text: str) -> int:
    if not _PLACE.fullmatch(text):
        raise continuation.unusable()
    return int(text)
