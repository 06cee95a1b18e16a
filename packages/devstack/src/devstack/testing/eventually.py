"""Waiting is polling a condition with a deadline: a test never sleeps for a guessed time."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

POLL_SECONDS = 0.02
WITHIN_SECONDS = 30.0
"""Far longer than anything should take: only a test that fails waits so long, and a busy machine fails none."""

T = TypeVar("T")


@overload
async def eventually(condition: Callable[[], Awaitable[T]], *, within: float = ..., what: str = ...) -> T: ...


@overload
async def eventually(condition: Callable[[], T], *, within: float = ..., what: str = ...) -> T: ...


async def eventually(condition: Callable[[], Any], *, within: float = WITHIN_SECONDS, what: str = "") -> Any:
    """Poll ``condition`` until it gives something true, and return that.

    An ``AssertionError`` from the condition counts as "not yet"; the last one is what fails the test.
    """
    deadline = time.monotonic() + within
    while True:
        failure: AssertionError | None = None
        try:
            result = condition()
            value = await result if inspect.isawaitable(result) else result
            if value:
                return value
        except AssertionError as not_yet:
            failure = not_yet
        if time.monotonic() > deadline:
            raise failure or AssertionError(f"not within {within} s: {what or condition}")
        await asyncio.sleep(POLL_SECONDS)
