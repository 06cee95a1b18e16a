"""A broker in memory: an accepted message is in each subscription until it is completed, dead-lettered or taken away.

It has Service Bus's features: a topic that drops an id that it has accepted within its window, subscriptions with
sessions and locks, a delivery count, dead letters.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from random import Random

from outbox_simulation.engine.bus_queue import Note, Queue, Rules, Sent, Taken
from outbox_simulation.engine.fault_injection import EPOCH, FaultyTransport
from outbox_simulation.engine.fault_plan import CALM, FaultRates


class Bus(FaultyTransport):
    """One topic and its subscriptions. ``taken`` has no duplicates."""

    def __init__(
        self,
        *subscriptions: str,
        random: Random | None = None,
        rates: FaultRates = CALM,
        rules: Rules = Rules(),  # noqa: B008 - frozen
        epoch: datetime = EPOCH,
        note: Note | None = None,
    ) -> None:
        """``random`` draws the broker's faults: only needed if there are any. ``epoch``: see EPOCH."""
        super().__init__(random=random, rates=rates, rules=rules, epoch=epoch, note=note)
        self._seen: dict[str, float] = {}
        self.queues: dict[str, Queue] = {name: Queue(name, self) for name in subscriptions}

    # -- the topic

    def accept(self, messages: Iterable[Sent]) -> None:
        """Puts a batch into each subscription; silently drops messages that the window knows."""
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
        """Puts it into a subscription, unless another receiver is faster there than the subscriber."""
        sent = taken.sent
        if self.strikes(self.rates.buried):
            self.note("buried", sent.aggregate, sent.message.id)
            queue.bury(taken)
        elif isinstance(sent.message.data.get("sequence"), int) and (
            self.strikes(self.rates.stolen) or self.steals(sent.aggregate)
        ):
            self.note("stolen", sent.aggregate, sent.message.id)
        else:
            queue.put(taken)

    # -- an operator

    def take_away(self, subscription: str, count: int = 1) -> Sequence[Taken]:
        """Lets another receiver take messages from a subscription and complete them."""
        queue = self.queues[subscription]
        waiting = queue.waiting()
        gone = [waiting.pop(self.one_of(len(waiting))) for _ in range(min(count, len(waiting)))]
        for held in gone:
            queue.remove(held)
            self.note("taken away", held.taken.sent.aggregate, held.taken.sent.message.id)
        return [held.taken for held in gone]
