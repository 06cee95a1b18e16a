"""A list of the API is read to its end or not at all."""

from typing import Any

import aiohttp

PAGE_SIZE = 100


async def whole_list(http: aiohttp.ClientSession, url: str) -> list[dict[str, Any]] | None:
    """All items of all pages; None when one of them could not be had."""
    found: list[dict[str, Any]] = []
    parameters = {"pageSize": str(PAGE_SIZE)}
    try:
        while True:
            async with http.get(url, params=parameters) as answer:
                if answer.status != 200:
                    return None
                page = await answer.json()
            found += page["items"]
            if page["continuationToken"] is None:
                return found
            parameters["continuationToken"] = page["continuationToken"]
    except (aiohttp.ClientError, TimeoutError, OSError):
        return None
