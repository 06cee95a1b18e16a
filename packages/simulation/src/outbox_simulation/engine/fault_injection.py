"""Base of every transport double: the running loop's time, the seed's luck, and the messages taken.

Time is the running loop's, chance is the given ``random.Random``; it has none of its own. Its own actions, and those
for a client that may be gone by then, run in the context in which it was created: a crash of the client does not undo
them.
"""

import asyncio
import contextvars
from collections.abc import Callable, Mapping, Sized
from datetime import UTC, datetime, timedelta
from random import Random

from outbox_simulation.engine.bus_queue import Note, Rules, Taken
from outbox_simulation.engine.fault_plan import CALM, FaultRates
from outbox_simulation.engine.instance import SimulatedInstance

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""The broker's time of day at the loop's time 0."""

RESTS_SECONDS = 15.0
"""The pause between two outages."""


class FaultyTransport:
    """One transport with its faults."""

    queues: Mapping[str, Sized]
    """The waiting messages of each subscription."""

    def __init__(
        self,
        *,
        random: Random | None = None,
        rates: FaultRates = CALM,
        rules: Rules = Rules(),  # noqa: B008 - frozen
        epoch: datetime = EPOCH,
        note: Note | None = None,
    ) -> None:
        """``random`` draws the faults: only needed if there are any. ``epoch``: see EPOCH."""
        self.rates = rates
        self.rules = rules
        self.taken: list[Taken] = []
        """The messages taken, in order."""
        self.refused: set[str] = set()
        """The events that were refused for good."""
        self.note: Note = note or _nobody
        self.steals: Callable[[str], bool] = lambda _aggregate: False
        """Whether another receiver gets the message of this aggregate that is put into a subscription now."""
        self.refuses: Callable[[str, str], bool] = lambda _aggregate, _event: False
        """Whether this event of this aggregate is refused for good."""
        self._random = random or Random(0)  # noqa: S311 - no secret; unused without faults
        self._epoch = epoch
        self._context = contextvars.copy_context()
        self._away_until = self._rests_until = 0.0

    def now(self) -> float:
        """The time of the running loop's clock."""
        return asyncio.get_running_loop().time()

    def wall(self, at: float) -> datetime:
        """Returns the time that it shows its clients, whatever their own clocks show."""
        return self._epoch + timedelta(seconds=at)

    def later(self, seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        """Calls it later in the transport's own context."""
        return asyncio.get_running_loop().call_later(seconds, call, context=self._context.copy())

    def strikes(self, chance: float) -> bool:
        """Draws whether it happens now."""
        return chance > 0 and self._random.random() < chance

    def one_of(self, count: int) -> int:
        """Draws a number below ``count``."""
        return self._random.randrange(count)

    def way_seconds(self) -> float:
        """Draws the time of the next way."""
        longest = self.rates.longest_way_seconds
        return self._random.uniform(0.0, longest) if longest else 0.0

    def is_away(self) -> bool:
        """Whether it is unavailable now; an outage may begin with this call."""
        if self.strikes(self.rates.outage):
            self.go_away(self._random.uniform(0.0, self.rates.longest_outage_seconds))
        return self.now() < self._away_until

    def go_away(self, seconds: float) -> None:
        """Makes it unavailable for this time, unless it has just come back: something must get through in between."""
        if self.now() < self._rests_until:
            return
        self._away_until = self.now() + seconds
        self._rests_until = self._away_until + RESTS_SECONDS
        self.note("bus away", detail=f"for {seconds:.1f} s")

    def ended(self, instance: SimulatedInstance) -> None:
        """Releases what a process held that is gone."""


def _nobody(what: str, about: str = "", detail: str = "") -> None:
    """Records nothing."""
