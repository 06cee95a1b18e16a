"""One aggregate of the service's own that changes each minute: what becomes of its events shows how the path is.

It is written, forwarded and received as every other, and holds nothing of anybody. However many processes sing, it
changes once a minute: who finds that it has sung lately changes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar

from cosmos_outbox.kernel.clock import Clock, new_id, utc_now
from cosmos_outbox.outbox.aggregate import Aggregate, AggregateState
from cosmos_outbox.outbox.aggregates import Aggregates
from cosmos_outbox.outbox.errors import AggregateNotFound, ConcurrentChange, PreconditionFailed
from cosmos_outbox.outbox.event import Timestamp, WireModel
from cosmos_outbox.outbox.unit_of_work import Origin

TYPE = "canary"
"""The aggregate's type, and its id: a service has one."""

LATELY = timedelta(seconds=45)


class Sung(WireModel):
    """What a canary's events tell."""

    sung_at: Timestamp


class CanaryState(Sung, AggregateState):
    """What is stored of a canary."""

    created_at: Timestamp


class Canary(Aggregate[CanaryState]):
    """Changes each minute, for ever."""

    aggregate_type: ClassVar[str] = TYPE
    state_type: ClassVar[type[AggregateState]] = CanaryState
    created_event, created_tells = "CanaryCreatedEvent", Sung
    changed_events: ClassVar[Mapping[str, Any]] = {"sung_at": "CanarySangEvent"}

    @property
    def aggregate_id(self) -> str:
        """The one there is."""
        return TYPE

    def sing(self, at: datetime) -> None:
        """Change, unless it was done lately; a clock that was turned back does not silence it."""
        if abs(at - self.state.sung_at) >= LATELY:
            self._set("sung_at", at, at)


@dataclass(frozen=True)
class Singer:
    """Makes the canary sing: called each minute by a timer or a worker."""

    aggregates: Aggregates
    clock: Clock = utc_now

    async def sing(self) -> None:
        """Change the canary, or make it. Raises Throttled, Unavailable."""
        origin, now = Origin(f"canary-{new_id()}"), self.clock()
        try:
            await self.aggregates.change(Canary, TYPE, lambda found: found.sing(now), origin)
        except AggregateNotFound:
            try:
                await self.aggregates.create(
                    Canary(CanaryState(created_at=now, sung_at=now), is_new=True), origin
                )
            except PreconditionFailed:
                return  # another process was faster
        except ConcurrentChange:
            return  # others sing
