"""Simulates a service that only subscribes, with messages that come late, again, in another order, or never.

The deployed inbox runs over stores in memory. A lost message is replaced by the publisher's API if there is one;
without one it is late. For a while a proxy answers in the API's place that it knows no such page, and a walk may run
then: no entry is lost for it. Processes that die are not simulated here.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from cosmos_outbox.composition.declarations import EffectDeclaration, ReadModelDeclaration
from cosmos_outbox.inbox.errors import StoreUnavailable
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import using
from cosmos_outbox.service import Service
from cosmos_outbox.sources.http import HttpApi
from cosmos_outbox.testing.memory import InMemory, in_memory
from cosmos_outbox.testing.messages import Message, message
from outbox_simulation.derived_invariants.derived import Asked
from outbox_simulation.derived_invariants.found import (
    AggregateFound,
    LeftBehind,
    ReadModelFound,
    StoredChange,
    StoredEvent,
)
from outbox_simulation.derived_invariants.rules import broken
from outbox_simulation.engine.redeclared import redeclared
from outbox_simulation.engine.walking import walk_all
from outbox_simulation.invariants.violation import Violation

Event = tuple[str, Mapping[str, Any]]
"""The event's action and its data."""

_AGGREGATES, _MOST_EVENTS, _ROUNDS = 3, 8, 20
_LATE, _LOST = 0.15, 0.1
"""The shares of late and of lost messages."""
_HIDDEN, _WALKED = 0.2, 0.5
"""The shares of messages that come while a proxy hides the API, and of those times at which a walk runs."""


@dataclass(frozen=True)
class Publishes:
    """The events that another team publishes of its aggregates, for :func:`simulate`.

    Its API shows of each the result of all its events.

    Example::

        bookings = Publishes(
            "booking",
            first=lambda luck: ("BookingCreated", {"title": "A table", "seats": 1}),
            then=[lambda luck: ("SeatsChanged", {"seats": luck.randint(1, 8)})],
            last="BookingDeleted",
        )
        await asyncio.to_thread(simulate, subscriber, bookings)
    """

    of: str
    first: Callable[[Random], Event]
    then: Sequence[Callable[[Random], Event]] = ()
    last: str | None = None
    """The action of the event that deletes one; None: none does."""

    def history(self, luck: Random, aggregate_id: str) -> list[tuple[Message, Mapping[str, Any] | None]]:
        """Returns the events of one aggregate, each with the API's answer after it; None: it is gone."""
        events = [self.first(luck)]
        events += [
            luck.choice(self.then)(luck) for _ in range(luck.randrange(_MOST_EVENTS) if self.then else 0)
        ]
        shown: dict[str, Any] = {}
        history: list[tuple[Message, Mapping[str, Any] | None]] = []
        for sequence, (action, data) in enumerate(events, start=1):
            shown = {**shown, **data, "sequence": sequence}
            history.append((message((self.of, aggregate_id), action, sequence, data=data), shown))
        if self.last is not None and luck.random() < 1 / 4:
            history.append((message((self.of, aggregate_id), self.last, len(events) + 1), None))
        return history


@dataclass
class _Run:
    """The run of one seed."""

    memory: InMemory
    service: Service
    luck: Random
    histories: dict[AggregateKey, list[tuple[Message, Mapping[str, Any] | None]]] = field(
        default_factory=dict
    )

    late: list[Message] = field(default_factory=list)

    async def deliver(self) -> None:
        """Delivers all messages, some late, again or never by the seed. Raises errors that no inbox may raise."""
        luck = self.luck
        may_lose = all(
            isinstance(getattr(each, "source", None), HttpApi) for each in self.service.subscribers
        )
        left = {key: [*history] for key, history in self.histories.items()}
        late, answers = self.late, self.memory.publisher
        while left:
            key = luck.choice(sorted(left, key=str))
            delivered, shown = left[key].pop(0)
            if shown is None:
                answers.pop(key.id, None)
            else:
                answers[key.id] = shown
            answers.hidden = luck.random() < _HIDDEN
            if answers.hidden and luck.random() < _WALKED:
                await self._walk()
            fate = luck.random()
            if fate < _LATE:
                late.append(delivered)
            elif not (
                may_lose and left[key] and fate < _LATE + _LOST
            ):  # a lost last message is found only by a walk
                await self._deliver(*[delivered] * luck.choice([1, 1, 2]))
            if late and luck.random() < 0.3:
                await self._deliver(late.pop(luck.randrange(len(late))))
            if not left[key]:
                del left[key]
        answers.hidden = False
        for delivered in late:
            await self.memory.deliver(delivered)
        for _ in range(_ROUNDS):
            await self.memory.upkeep()

    async def _deliver(self, *delivered: Message) -> None:
        """Delivers a message, once or twice; it comes again later if its source does not answer."""
        try:
            await self.memory.deliver(*delivered)
        except StoreUnavailable:
            self.late.append(delivered[0])

    async def _walk(self) -> None:
        with suppress(StoreUnavailable), using(self.memory.clock.sources()):
            await walk_all(self.memory.wired.subscriptions)

    async def left_behind(self, asked: Mapping[str, Asked]) -> LeftBehind:
        found = LeftBehind(
            effects={
                each.name: (each.aggregate_type, asked[each.name].events, each.kinds)
                for each in self.service.subscribers
                if isinstance(each, EffectDeclaration)
            },
            in_order=False,
        )
        for key, history in self.histories.items():
            for delivered, shown in history:
                found.changes.append(StoredChange(shown or {"deleted": True}, [_event(key, delivered)]))
        found.taken = []
        for each in self.service.subscribers:
            if isinstance(each, ReadModelDeclaration):
                found.read_models.append(await self._read_model(each))
        return found

    async def _read_model(self, of: ReadModelDeclaration[Any]) -> ReadModelFound:
        entries: dict[str, Mapping[str, Any]] = {}
        sources: dict[str, AggregateFound] = {}
        for key, history in self.histories.items():
            if key.type != of.aggregate_type:
                continue
            shown = history[-1][1]
            sources[key.id] = AggregateFound(len(history), shown is None, shown or {})
            entry = await self.memory.entry(of, key.id)
            if entry is not None:
                entries[key.id] = {
                    "deleted": entry.deleted, "lastSequence": entry.last_sequence, "state": entry.state,
                }  # fmt: skip
        return ReadModelFound(
            of.name,
            of.aggregate_type,
            of.state_of,
            of.project,
            lambda entry: entry["state"],
            sources,
            entries,
        )


async def violations(service: Service, publishers: Sequence[Publishes], seed: int) -> list[Violation]:
    """What one seed finds."""
    luck = Random(f"{seed}:messages")  # noqa: S311 - no secret
    asked = {
        each.name: Asked(each.run) for each in service.subscribers if isinstance(each, EffectDeclaration)
    }
    copy = redeclared(
        service,
        lambda each: replace(each, run=asked[each.name]) if isinstance(each, EffectDeclaration) else each,
    )
    async with in_memory(copy) as memory:
        run = _Run(memory, copy, luck)
        for publishes in publishers:
            for number in range(1, _AGGREGATES + 1):
                key = AggregateKey(publishes.of, f"{publishes.of}-{number}")
                run.histories[key] = publishes.history(luck, key.id)
        await run.deliver()
        failed = [
            Violation("effect fails", f"{name}: {why}")
            for name, each in asked.items()
            for why in each.failures
        ]
        aside = [Violation("set aside", each.reason) for each in await memory.set_aside()]
        of_messages = ("lost event", "aggregate without its events")
        found = broken(await run.left_behind(asked))
        return [*failed, *(each for each in found if each.rule not in of_messages), *aside]


def _event(key: AggregateKey, message: Message) -> StoredEvent:
    data = message.data
    version = message.properties.get("schemaVersion")
    return StoredEvent(message.id, key, data["sequence"], data["action"], "", data, version)
