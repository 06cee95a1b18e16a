"""A batch is handled only after the one before it; all that may run earlier is a step that changes nothing."""

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
    """The request units that were spent to read the batch."""


Changes = Sequence[Mapping[str, Any]]
Handler = Callable[[Changes, ChangeFeedContext], Awaitable[None]]
OnError = Callable[[str | None, Exception], None]
"""Called with the lease token (``None``: the processor as a whole) and the error. The processor goes on by itself."""

Work = Callable[[ChangeFeedContext], Awaitable[None]]
"""What is still to be done with a batch that was prepared."""

T = TypeVar("T")


@dataclass(frozen=True)
class TwoSteps(Generic[T]):
    """A handler that has work to do with a batch before the batch's turn comes, such as reading it.

    ``prepare`` runs while the batch before is being handled, whose outcome is not known yet, and is cancelled when that
    fails. So it changes nothing outside, and a batch may be prepared again. ``handle`` gets what it returned.
    """

    prepare: Callable[[Changes], Awaitable[T]]
    handle: Callable[[T, ChangeFeedContext], Awaitable[None]]

    async def begin(self, changes: Changes) -> Work:
        """Do the first step. Raises what ``prepare`` raises."""
        return partial(self.handle, await self.prepare(changes))


async def as_they_are(changes: Changes) -> Changes:
    """The first step of a handler that has none."""
    return changes
