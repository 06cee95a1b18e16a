"""What became of the attempts at a batch is noted where they are made, for the one who waits for the batch.

The notes are apart from the transport that makes them, since aiohttp is slow to import and the first client needs it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

from cosmos_outbox.cosmos.store.errors import Failure, Kind

_NOT_WRITTEN = {403, 449}
"""Statuses of a failure that passes: a region that takes no writes now, and a write to be sent again as it is
(https://learn.microsoft.com/rest/api/cosmos-db/http-status-codes-for-cosmosdb)."""


@dataclass
class Attempts:
    """What became of the attempts at one transactional batch."""

    answer_lost: bool = False
    """An attempt may have reached the service, and no answer came that tells its outcome."""
    throttled: bool = False
    """The newest answer says 429."""
    succeeded: bool = False
    """The newest answer is a success. It may be lost all the same: what stands in it cannot be read, or not in time."""

    def outcome(self, failure: Failure) -> Failure:
        """What the batch's failure means, given what became of its attempts."""
        if failure.kind is not Kind.PASSING or failure.status:
            told = failure.kind is not Kind.PASSING or failure.status in _NOT_WRITTEN
            return replace(failure, answer_lost=self.answer_lost or not told)
        answer_lost = self.answer_lost or self.succeeded
        if self.throttled and not answer_lost:  # the deadline came while the SDK waited to try again
            return replace(failure, kind=Kind.THROTTLED)
        return replace(failure, answer_lost=answer_lost)


current: ContextVar[Attempts | None] = ContextVar("attempts", default=None)


@contextmanager
def noted() -> Iterator[Attempts]:
    """Note what becomes of the batches that are sent in this context."""
    attempts = Attempts()
    token = current.set(attempts)
    try:
        yield attempts
    finally:
        current.reset(token)
