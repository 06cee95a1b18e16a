"""What is due happens once, not before its time, and not when the aggregate's state says otherwise by then.

When it is due follows from the state alone, and stands in the aggregate's own document (``stored_with_the_state``): so
a change that moves or cancels it needs no second write. What a search finds is a hint. The state that is read decides
(``state_decides``), and its change is stored at its version, with its events, as any other (``at_its_version``): of two
processes that meet one deadline, or of a deadline and a payment, the one that is stored first is what the other finds.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from cosmos_outbox.kernel.clock import monotonic, new_id, randomness, utc_now
from cosmos_outbox.outbox import telemetry
from cosmos_outbox.outbox.aggregate import Aggregate
from cosmos_outbox.outbox.aggregates import Aggregates
from cosmos_outbox.outbox.errors import AggregateNotFound, ConcurrentChange, Throttled, Unavailable
from cosmos_outbox.outbox.unit_of_work import Origin

BEAT_SECONDS = 10.0
"""Between two looks: by about so much a deadline may be late."""

CAUSE = "due-"
"""The correlation ids of what happens by itself begin with it."""

ROUND_SECONDS = 60.0
"""What one round may take, before the next one looks anew."""

_AT_ONCE = 8
_REST_SECONDS = 300.0
"""How long an aggregate that cannot meet its deadline is left alone by this process."""

_log = logging.getLogger(__name__)


class NotSettled(Exception):
    """After ``on_due`` the aggregate is as due as before: a bug of the aggregate."""


@dataclass(frozen=True)
class DueDocument:
    """An aggregate's document, as a search found it."""

    aggregate_type: str
    id: str
    partition_key: str
    due: datetime


class DueDocuments(Protocol):
    """The documents of aggregates that are due, as far as a replica knows. Raises Throttled, Unavailable."""

    def pages(self, now: datetime) -> AsyncIterator[Sequence[DueDocument]]:
        """Those that are due at this time, in no promised order."""

    async def correct(self, found: DueDocument, kind: type[Aggregate[Any]]) -> None:
        """Let the document say when the aggregate is due, if it does not: by a rule that was made later, say."""


@dataclass
class Deadlines:
    """Meets the deadlines of a service. Any number of processes may do so side by side."""

    documents: DueDocuments
    aggregates: Aggregates
    kinds: Mapping[str, type[Aggregate[Any]]]
    """By their types: those that can be due."""
    clock: Callable[[], datetime] = utc_now
    time: Callable[[], float] = monotonic
    _resting: dict[tuple[str, str], float] = field(default_factory=dict, init=False)

    async def meet(self) -> int:
        """Call ``on_due`` of each aggregate that is due. Returns how many were changed. Raises Throttled, Unavailable.

        What hits one aggregate holds up no other: it is logged as an error, and tried again some minutes later.
        """
        now, ends_at = self.clock(), self.time() + ROUND_SECONDS
        self._resting = {key: until for key, until in self._resting.items() if until > self.time()}
        left: dict[DueDocument, None] = {}
        met, looked = 0, False
        try:
            async for page in self.documents.pages(now):
                ours = [each for each in page if each.aggregate_type in self.kinds]
                left |= dict.fromkeys(ours)
                for some in _in_any_order(ours):
                    if self.time() > ends_at:
                        return met
                    done = await self._meet_all(some)
                    met += sum(done.values())
                    left = {each: None for each in left if each not in done}
            looked = True
            return met
        finally:
            if looked or left:  # who could not look says nothing of what is due
                telemetry.due([each.due for each in left], self.clock())

    async def _meet_all(self, some: Sequence[DueDocument]) -> Mapping[DueDocument, bool]:
        """Those that are not due any more, and whether each was changed. Raises what hits all of them."""
        outcomes = await asyncio.gather(*map(self._try, some), return_exceptions=True)
        failures = [each for each in outcomes if isinstance(each, BaseException)]
        if len(failures) == len(some):  # one partition may be full, or throttled
            raise failures[0]
        return {
            found: outcome for found, outcome in zip(some, outcomes, strict=True) if isinstance(outcome, bool)
        }

    async def _try(self, found: DueDocument) -> bool | None:
        """Whether it was changed; None: it is as due as before. Raises Throttled, Unavailable."""
        key = found.aggregate_type, found.id
        if key in self._resting:
            return None
        try:
            return await self._meet(found)
        except (Throttled, Unavailable):
            raise
        except ConcurrentChange:
            return None
        except Exception as error:  # noqa: BLE001 - whatever one aggregate makes raise hits that one alone
            self._resting[key] = self.time() + _REST_SECONDS
            # The text of another error may hold what it failed on, which is personal.
            told = str(error) if isinstance(error, NotSettled) else type(error).__name__
            _log.error("%s %s is due, and cannot be met: %s", *key, told)
            return None

    async def _meet(self, found: DueDocument) -> bool:
        kind, at = self.kinds[found.aggregate_type], self.clock()
        try:
            receipt = await self.aggregates.change(
                kind,
                found.id,
                lambda aggregate: fall_due(aggregate, at),
                Origin(f"{CAUSE}{new_id()}"),
                partition_key=found.partition_key,
            )
        except AggregateNotFound:
            return False
        if not receipt.events:
            await self.documents.correct(found, kind)
        return bool(receipt.events)


def fall_due(aggregate: Aggregate[Any], at: datetime) -> None:
    """Let what is due happen; nothing, where the state says that it is not. Raises NotSettled."""
    due = aggregate.due
    if due is None or due > at:
        return
    aggregate.on_due(at=at)
    after = aggregate.due
    if after is not None and after <= due and not aggregate.deleted:
        raise NotSettled(
            f"{type(aggregate).__name__}.on_due leaves it as due as before: change what due tells, or let due be None"
        )


def _in_any_order(found: Sequence[DueDocument]) -> Iterator[Sequence[DueDocument]]:
    """A few at a time: two processes that look at once meet other ones first."""
    shuffled = randomness().sample(found, len(found))
    for start in range(0, len(shuffled), _AT_ONCE):
        yield shuffled[start : start + _AT_ONCE]
