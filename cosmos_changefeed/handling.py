"""The handler of a batch. Batches of a lease are handled in order; only ``prepare`` may run earlier."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from cosmos_changefeed.lease import EpkRange


@dataclass(frozen=True)
class ChangeFeedContext:
    """The origin of a batch."""

    lease_token: str
    feed_range: EpkRange
    continuation: str
    """The content of the checkpoint after the handler has returned: an LSN in quotes."""
    session_token: str
    request_charge: float
    """The request units spent to read the batch."""


Changes = Sequence[Mapping[str, Any]]
Handler = Callable[[Changes, ChangeFeedContext], Awaitable[None]]
OnError = Callable[[str | None, Exception], None]
"""Called with the lease token (``None``: the processor as a whole) and the error. The processor continues."""

Work = Callable[[ChangeFeedContext], Awaitable[None]]
"""Handles a batch that was prepared."""

T = TypeVar("T")


@dataclass(frozen=True)
class TwoSteps(Generic[T]):
    """A handler that prepares a batch, for example by reading from a store, while the one before it is handled.

    The outcome of that earlier batch is not known yet, and ``prepare`` is cancelled if it fails. So ``prepare`` must
    have no side effects, and a batch may be prepared again. ``handle`` is given its result.
    """

    prepare: Callable[[Changes], Awaitable[T]]
    handle: Callable[[T, ChangeFeedContext], Awaitable[None]]

    async def begin(self, changes: Changes) -> Work:
        """Run ``prepare``; returns the second step. Raises the errors of ``prepare``."""
        return partial(self.handle, await self.prepare(changes))


async def as_they_are(changes: Changes) -> Changes:
    """Returns the changes unchanged: ``prepare`` of a handler without one."""
    return changes
