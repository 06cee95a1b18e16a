"""A store whose pages of queries end early, as the service's do when they grow large or take long."""

from typing import Any

import pytest
from azure.core.async_paging import AsyncItemPaged
from azure.cosmos.aio import ContainerProxy


def shorten_pages(monkeypatch: pytest.MonkeyPatch, items: int = 2) -> None:
    """From now on a page has so many items at most, whatever was asked for."""
    query_items = ContainerProxy.query_items

    def short(self: ContainerProxy, *arguments: Any, **named: Any) -> AsyncItemPaged[dict[str, Any]]:
        return query_items(self, *arguments, **named | {"max_item_count": items})

    monkeypatch.setattr(ContainerProxy, "query_items", short)
