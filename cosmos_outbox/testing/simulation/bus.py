"""A broker in memory: what it accepted is in each subscription until it is completed, dead-lettered or taken away.

It gives what Service Bus gives: a topic that drops an id that it has accepted within its window, subscriptions with
sessions and locks, a delivery count, dead letters. Time is the running loop's, chance is the ``random.Random`` that it
is given; it has none of its own. What it does by itself, or carries out for a client that may be gone by then, runs in
the context in which it was made: a crash of the client does not undo it.
"""

import asyncio
import contextvars
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from random import Random

from cosmos_outbox.testing.simulation.befalls import CALM, Befalls
from cosmos_outbox.testing.simulation.bus_queue import Note, Queue, Rules, Sent, Taken
from cosmos_outbox.testing.simulation.instance import SimulatedInstance

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""The broker's time of day when the loop's clock shows 0."""

RESTS_SECONDS = 15.0
"""Between two outages."""


class Bus:
    """One topic and its subscriptions."""

    def __init__(
        self,
        *subscriptions: str,
        random: Random | None = None,
        befalls: Befalls = CALM,
        rules: Rules = Rules(),  # noqa: B008 - frozen
        epoch: datetime = EPOCH,
        note: Note | None = None,
    ) -> None:
        """``random`` draws what befalls the broker: not needed where nothing does. ``epoch``: see EPOCH."""
        self.befalls = befalls
        self.rules = rules
        self.taken: list[Taken] = []
        """What subscribers get, in the order of the topic; a duplicate is not among them."""
        self.refused: set[str] = set()
        """The events that were refused for good."""
        self.note: Note = note or _nobody
        self.steals: Callable[[str], bool] = lambda _aggregate: False
        """Whether somebody else gets the message of this aggregate that is put into a subscription now."""
        self.refuses: Callable[[str, str], bool] = lambda _aggregate, _event: False
        """Whether this event of this aggregate is refused for good."""
        self._random = random or Random(0)  # noqa: S311 - no secret; it is not drawn from where nothing befalls
        self._epoch = epoch
        self._context = contextvars.copy_context()
        self._seen: dict[str, float] = {}
        self._away_until = self._rests_until = 0.0
        self.queues = {name: Queue(name, self) for name in subscriptions}

    # -- time and chance

    def now(self) -> float:
        """By the running loop's clock."""
        return asyncio.get_running_loop().time()

    def wall(self, at: float) -> datetime:
        """What the broker tells its clients of a time, whatever their own clocks show."""
        return self._epoch + timedelta(seconds=at)

    def later(self, seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        """Call it as the broker's own."""
        return asyncio.get_running_loop().call_later(seconds, call, context=self._context.copy())

    def befall(self, chance: float) -> bool:
        """Whether it happens now."""
        return chance > 0 and self._random.random() < chance

    def one_of(self, count: int) -> int:
        """A number below ``count``."""
        return self._random.randrange(count)

    def way_seconds(self) -> float:
        """How long the next way takes."""
        longest = self.befalls.longest_way_seconds
        return self._random.uniform(0.0, longest) if longest else 0.0

    def is_away(self) -> bool:
        """Whether nobody reaches the broker now; an outage may begin with the question."""
        if self.befall(self.befalls.outage):
            self.go_away(self._random.uniform(0.0, self.befalls.longest_outage_seconds))
        return self.now() < self._away_until

    def go_away(self, seconds: float) -> None:
        """Nobody reaches the broker for so long, unless it has just come back: something gets through in between."""
        if self.now() < self._rests_until:
            return
        self._away_until = self.now() + seconds
        self._rests_until = self._away_until + RESTS_SECONDS
        self.note("bus away", detail=f"for {seconds:.1f} s")

    def ended(self, instance: SimulatedInstance) -> None:
        """A process is gone: what it held comes back when its locks run out."""

    # -- the topic

    def accept(self, messages: Iterable[Sent]) -> None:
        """Put a batch into each subscription; without a word drop what the window knows."""
        horizon = self.now() - self.rules.duplicate_window_seconds
        while self._seen and next(iter(self._seen.values())) <= horizon:
            del self._seen[next(iter(self._seen))]
        for sent in messages:
            if sent.message.id in self._seen:
                self.note("bus drops", sent.aggregate, sent.message.id)
                continue
            self._seen[sent.message.id] = self.now()
            taken = Taken(self.now(), len(self.taken) + 1, sent)
            self.taken.append(taken)
            self.note("bus takes", sent.aggregate, f"{sent.message.id} as {taken.number}")
            for queue in self.queues.values():
                self._put(queue, taken)

    def _put(self, queue: Queue, taken: Taken) -> None:
        """Into a subscription, unless somebody else is faster there than its subscriber."""
        sent = taken.sent
        if self.befall(self.befalls.buried):
            self.note("buried", sent.aggregate, sent.message.id)
            queue.bury(taken)
        elif isinstance(sent.message.data.get("sequence"), int) and (
            self.befall(self.befalls.stolen) or self.steals(sent.aggregate)
        ):
            self.note("stolen", sent.aggregate, sent.message.id)
        else:
            queue.put(taken)

    # -- an operator

    def take_away(self, subscription: str, count: int = 1) -> Sequence[Taken]:
        """Messages that wait in a subscription are received by somebody else, who completes them."""
        queue = self.queues[subscription]
        waiting = queue.waiting()
        gone = [waiting.pop(self.one_of(len(waiting))) for _ in range(min(count, len(waiting)))]
        for held in gone:
            queue.remove(held)
            self.note("taken away", held.taken.sent.aggregate, held.taken.sent.message.id)
        return [held.taken for held in gone]


def _nobody(what: str, about: str = "", detail: str = "") -> None:
    """Takes nothing down."""
