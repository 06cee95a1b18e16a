"""A batch is stored once or not at all, whatever answers are lost; who asked learns which, or that it is not known.

The answer to a batch can get lost after the batch was committed, and the SDK may have repeated the batch on its own. A
batch that the store can commit only once is therefore repeated as it is, until it is committed or refused.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from cosmos_outbox.cosmos.aggregates.batch import too_large
from cosmos_outbox.cosmos.store.container import DEADLINE_SECONDS, Container, StoreFailed
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.cosmos.store.partition_key import Key
from cosmos_outbox.cosmos.store.writes import Write
from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.outbox.errors import OutcomeUnknown, Unavailable
from cosmos_outbox.outbox.unit_of_work import ETag

PATIENCE_SECONDS = 7.0
"""How long a batch whose answer was lost is repeated before OutcomeUnknown is raised."""
_FIRST_PAUSE_SECONDS = 0.1
_TAKEN = {Kind.CONFLICT, Kind.STALE, Kind.MISSING}
_REFUSED = {Kind.INVALID, Kind.TOO_LARGE, Kind.DENIED, Kind.NO_CONTAINER}
"""Trying again changes nothing. None of them tells what became of an earlier attempt whose answer was lost."""

_log = logging.getLogger(__name__)


def refused(failure: Failure) -> Exception:
    """The error of a batch of which nothing is stored."""
    return too_large() if failure.kind is Kind.TOO_LARGE else failure.error()


def unknown(failure: Failure) -> OutcomeUnknown:
    """The error of a batch that may be stored."""
    return OutcomeUnknown(
        f"the store did not answer ({failure.detail}); the change may be stored or not: "
        "read again, or repeat the request"
    )


@dataclass(frozen=True)
class WriteRefusal:
    """A document is there, or not at the version that the batch wants: by another writer, or by this very batch."""

    failure: Failure
    answer_lost: bool
    """Whether an attempt before may have been stored."""


@dataclass(frozen=True)
class Once:
    """A batch, and what tells whether an earlier attempt at it was stored."""

    container: Container
    partition_key: Key
    writes: Sequence[Write]
    meaning: Callable[[WriteRefusal], Awaitable[Sequence[ETag | None]]]
    """The ETags of the batch, when an earlier attempt has stored it; else it raises."""
    error: Callable[[Failure], Exception] = refused
    repeatable: bool = True
    """Whether the store commits the batch at most once, however often it comes."""

    async def store(self, give_up_at: float) -> Sequence[ETag | None]:
        """Store it, trying until this time of the monotonic clock. Raises OutcomeUnknown, and what ``error`` makes."""
        pause, answer_lost = _FIRST_PAUSE_SECONDS, False
        while True:
            try:
                return await self.container.execute(self.partition_key, self.writes)
            except StoreFailed as error:
                failure = error.failure
                answer_lost = answer_lost or failure.answer_lost
                if failure.kind in _TAKEN:
                    return await self.meaning(WriteRefusal(failure, answer_lost))
                final = failure.kind in _REFUSED or (failure.kind is Kind.THROTTLED and not answer_lost)
                final = final or (answer_lost and not self.repeatable)
                if final or not await _wait(pause, give_up_at):
                    raise (unknown(failure) if answer_lost else self.error(failure)) from error
            _log.warning("storing a transaction again: %s", failure.detail)
            pause *= 2


def latest(until: float) -> float:
    """When the last attempt may begin that ends in time (rule ``deadline``). Raises Unavailable: it is too late."""
    if monotonic() > until - DEADLINE_SECONDS:
        raise Unavailable("the request comes too late, and stores nothing any more: send it again")
    return until - DEADLINE_SECONDS


async def _wait(seconds: float, until: float) -> bool:
    """Sleep, and tell whether there is still time; a process can be stopped in its sleep, for any time."""
    if monotonic() + seconds > until:
        return False
    await asyncio.sleep(seconds)
    return monotonic() <= until
