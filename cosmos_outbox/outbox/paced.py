"""Reading a page never holds up the loop for long: meanwhile the page before is sent, and leases are renewed."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import islice
from typing import TypeVar

T = TypeVar("T")

AT_ONCE = 50
"""About a millisecond's work, for what takes some ten microseconds each."""


async def pace(items: Iterable[T]) -> AsyncIterator[list[T]]:
    """The items in slices; other tasks have their turn between two."""
    rest = iter(items)
    while some := list(islice(rest, AT_ONCE)):
        yield some
        await asyncio.sleep(0)
