"""The SDK's pager gives pages one by one; here is the first of them, and the token of the next."""

from collections.abc import Mapping
from typing import Any

from azure.core.async_paging import AsyncItemPaged

from cosmos_outbox.cosmos.store.item import Item


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


def named(parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The parameters of a query in the SDK's form."""
    return [{"name": name, "value": value} for name, value in parameters.items()]
