"""A window holds whole seconds alone, as many of them as one page of the store has room for."""

from collections.abc import Mapping
from typing import Any

from cosmos_outbox.cosmos.relay.history import CosmosEventHistory
from cosmos_outbox.cosmos.store.item import Item
from cosmos_outbox.outbox.republish import Span
from cosmos_outbox.testing.documents import MemoryContainer
from tests.support.feed import EVENTS, event_document

ALL = Span(0, 100)


class Written(MemoryContainer):
    """Events that were written in these seconds; it tells how many pages were asked for."""

    def __init__(self, *seconds: int) -> None:
        super().__init__()
        self.pages = 0
        self._items = [event_document("a", n) | {"_ts": second} for n, second in enumerate(seconds, 1)]

    async def page_behind(  # type: ignore[override]  # that of the container in memory takes anything
        self, _: str, __: str, parameters: Mapping[str, Any], size: int, continuation: str | None
    ) -> tuple[list[Item], str | None]:
        self.pages += 1
        found = [item for item in self._items if parameters["@since"] <= item["_ts"] < parameters["@to"]]
        end = int(continuation or 0) + size
        return found[end - size : end], str(end) if end < len(found) else None


async def window(written: Written, span: Span, at_once: int) -> tuple[list[int | None], int]:
    """The sequences of the events in a window, and its end."""
    found = await CosmosEventHistory(written, EVENTS, "", at_once).window(span)
    return [event.sequence for event in found.events], found.end


async def test_a_window_has_all_seconds_of_a_page_but_the_last_in_which_more_may_have_been_written() -> None:
    written = Written(10, 11, 11, 12, 12, 12)
    assert await window(written, ALL, 4) == ([1, 2, 3], 12)
    assert written.pages == 1


async def test_a_second_in_which_more_was_written_than_a_page_holds_is_one_window() -> None:
    written = Written(12, 12, 12, 12, 12, 13)
    assert await window(written, ALL, 2) == ([1, 2, 3, 4, 5], 13)


async def test_where_nothing_was_written_the_window_goes_to_the_end() -> None:
    assert await window(Written(10), Span(11, 100), 4) == ([], 100)
