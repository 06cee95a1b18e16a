"""The SDK's pager gives pages one by one; here is the first of them, and the token of the next."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from azure.core.async_paging import AsyncItemPaged

from cosmos_outbox.cosmos.store.item import Item


class PageQuery(Protocol):
    """A query over all partitions for the first of what it finds."""

    def text(self, most: int) -> str:
        """The query for so many."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Its parameters."""

    def among(self, items: Iterable[Item]) -> list[Item]:
        """What it finds, in its order: for a store in memory."""


async def one_page(
    found: AsyncItemPaged[dict[str, Any]], continuation: str | None
) -> tuple[list[Item], str | None]:
    """The page at a continuation (None: the first one), and the token of the next; None: there is none."""
    pages = found.by_page(continuation)
    try:
        page = await anext(pages)
    except StopAsyncIteration:
        return [], None
    items = [dict(item) async for item in page]
    # azure.core's pager has the attribute, the pager's declared type has not
    return items, getattr(pages, "continuation_token", None)


def told_twice(items: Iterable[Item]) -> bool:
    """Whether one document is there twice, as azure-cosmos 4.17 tells it where a query meets a split partition.

    It makes its list of partitions anew and then adds those that it had still to ask once more
    (``_configure_partition_ranges`` in ``multi_execution_aggregator.py``). The next query knows the new ones.
    """
    told = [item["_rid"] for item in items if "_rid" in item]
    return len(told) > len(set(told))


def beyond(path: str, *, down: bool) -> str:
    """What comes after the item with ``@key`` and the id ``@after``: at its first half the index begins."""
    sign = "<" if down else ">"
    return f"{path} {sign}= @key AND ({path} {sign} @key OR c.id {sign} @after)"


def order_by(*paths: str, down: bool) -> str:
    """All in one direction, so that one ascending index serves both."""
    return f"ORDER BY {', '.join(f'{path} DESC' if down else path for path in paths)}"


def named(parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The parameters of a query in the SDK's form."""
    return [{"name": name, "value": value} for name, value in parameters.items()]
