"""A list of the API is read to its end, or not at all."""

from typing import Any

from tests.support import once

PAGE_SIZE = 100
_TIMEOUT_SECONDS = 12.0


async def whole_list(url: str) -> list[dict[str, Any]] | None:
    """All items of all pages; None when one of them could not be had."""
    found: list[dict[str, Any]] = []
    parameters = {"pageSize": str(PAGE_SIZE)}
    while True:
        try:
            answer = await once.send("GET", url, parameters=parameters, within=_TIMEOUT_SECONDS)
        except (once.NotSent, once.NoAnswer):
            return None
        if answer.status != 200:
            return None
        page = answer.json()
        found += page["items"]
        if page["continuationToken"] is None:
            return found
        parameters["continuationToken"] = page["continuationToken"]
