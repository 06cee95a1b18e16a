"""Declares the requests of a service's users, which the service's own declaration does not contain.

Each draws its values from the given ``luck`` and takes the time from ``at``, so that a seed always gives the same run.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Any, Generic, TypeVar

from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.outbox.aggregate import Aggregate, KeyedRequest, Origin, Receipt
from cosmos_outbox.service import Service, Wired
from outbox_simulation.engine.system_under_test import Reply, SimulatedClient, Wish
from outbox_simulation.invariants.records import Answered

A = TypeVar("A", bound=Aggregate[Any])

Call = Callable[[Random, datetime], Awaitable[None]]
"""A call of the user's own: it uses ``service()`` as the user's program does."""

KEYED_SHARE = 0.3
"""The share of changes with an ``Idempotency-Key``."""
_REPEATED, _PAUSE_SECONDS = 8, 0.3

NEW_SHARE = 0.2
"""The share of creations, while there are fewer aggregates than the plan has."""


@dataclass(frozen=True)
class Commands(Generic[A]):
    """The requests to the aggregates of a type, for :func:`simulate`.

    Example::

        def made(luck: Random, at: datetime) -> Booking:
            return Booking.create(title=luck.choice(["A table", "Two tables"]))

        def resized(booking: Booking, luck: Random, at: datetime) -> None:
            booking.resize(luck.randint(1, 8))

        def test_whatever_fails_no_event_is_lost() -> None:
            simulate(service, Commands(Booking, create=made, change=[resized]))
    """

    kind: type[A]
    create: Callable[[Random, datetime], A]
    change: Sequence[Callable[[A, Random, datetime], None]] = ()
    """Each changes an existing aggregate. May be called again with the same luck, on a newer state."""
    refuses: tuple[type[Exception], ...] = ()
    """The errors with which an aggregate refuses a change: nothing is stored then."""

    async def act(self, client: SimulatedClient, here: "Here | None" = None) -> None:
        """Makes one request of a client. ``here``: the commands of the version that takes the request."""
        here = here or (lambda _: self)
        known = sorted(each for each in client.etags if each.startswith(self._prefix))
        if (
            not known
            or (len(known) < client.aggregates and client.chance.random() < NEW_SHARE)
            or not self.change
        ):
            answer = await client.ask(self._creation(client, here))
            if answer.aggregate is not None:
                client.etags[self._prefix + answer.aggregate] = None
            return
        about = client.chance.choice(known)
        answer = await _ask(client, self._change(client, about.removeprefix(self._prefix), here))
        if answer.status == 404 or (answer.body or {}).get("deleted"):
            client.etags.pop(about, None)

    @property
    def _prefix(self) -> str:
        return f"{self.kind.aggregate_type}/"

    def _creation(self, client: SimulatedClient, here: "Here") -> Wish:
        seed = client.chance.random()

        async def create(wired: Wired, origin: Origin) -> Reply:
            made = here(wired).create(_luck(seed), utc_now())
            return _reply(await wired.aggregates.create(made, origin), 201)

        return Wish(client.next_name(), "create", create)

    def _change(self, client: SimulatedClient, aggregate_id: str, here: "Here") -> Wish:
        seed, number = client.chance.random(), client.chance.randrange(len(self.change))
        key = f"{client.name}-{seed}" if _luck(1 - seed).random() < KEYED_SHARE else None

        async def run(wired: Wired, origin: Origin) -> Reply:
            at, mine, aggregates = utc_now(), here(wired), wired.aggregates
            change = mine.change[number % len(mine.change)]
            request = KeyedRequest("simulation", key or "", str(seed), mine.status_of)

            def changed(each: Any) -> None:
                change(each, _luck(seed), at)

            try:
                if key is None:
                    return _reply(await aggregates.change(mine.kind, aggregate_id, changed, origin), 200)
                answer = await aggregates.change_once(mine.kind, aggregate_id, changed, request, origin)
            except mine.refuses:
                return Reply(409, body={"refused": True})
            if answer.replayed or answer.receipt is None:  # the answer does not name its attempt
                return Reply(200, aggregate_id, answer.sequence, {}, replayed=True)
            return _reply(answer.receipt, 200)

        return Wish(client.next_name(), "change", run, aggregate=aggregate_id, key=key)

    def status_of(self, error: Exception) -> int | None:
        """Returns the status of a refusal; None: the error is no refusal."""
        return 409 if isinstance(error, self.refuses) else None


Here = Callable[[Wired], Commands[Any]]


@dataclass(frozen=True)
class Release:
    """The last release of the service, and its users' requests, for :func:`simulate`.

    Example::

        at_first = Commands(
            Booking,
            create=lambda luck, at: Booking.create(title=luck.choice(["A table", "Two tables"])),
            change=[lambda booking, luck, at: booking.resize(luck.randint(1, 8))],
        )
        await asyncio.to_thread(simulate, service, at_first, seeds=1, before=Release(service, [at_first]))
    """

    service: Service
    commands: Sequence[Commands[Any]]
    """The commands of each type of aggregates in that release, in the order of those of the new version."""

    def __post_init__(self) -> None:
        if any(not each.change for each in self.commands):
            raise ValueError(
                "the last release changed its aggregates: name its changes in Commands(change=[...])"
            )


@dataclass(frozen=True)
class Calls:
    """Calls of the user's own, of which only the events are checked."""

    call: Call

    async def act(self, client: SimulatedClient) -> None:
        """Makes one call."""
        seed = client.chance.random()

        async def run(wired: Wired, origin: Origin) -> Reply:
            await self.call(_luck(seed), utc_now())
            return Reply(200, body={})

        await client.ask(Wish(client.next_name(), "change", run))


async def _ask(client: SimulatedClient, wish: Wish) -> Answered:
    """Asks; a request with a key is repeated until there is an answer, and sometimes after that, or twice at once."""
    if wish.key is None:
        return await client.ask(wish)
    answers = await asyncio.gather(*(client.ask(wish) for _ in range(client.chance.choice([1, 1, 2]))))
    for _ in range(_REPEATED):
        if any(each.outcome != "unknown" and each.status != 429 for each in answers):
            break
        await asyncio.sleep(_PAUSE_SECONDS)
        answers = [await client.ask(wish)]
    if client.chance.random() < KEYED_SHARE:
        await client.ask(wish)
    return next((each for each in answers if each.outcome == "acknowledged"), answers[0])


def _luck(seed: float) -> Random:
    return Random(seed)  # noqa: S311 - no secret


def _reply(receipt: Receipt[Any], status: int) -> Reply:
    aggregate = receipt.aggregate
    body = {"events": receipt.events, "deleted": aggregate.deleted}
    return Reply(status, aggregate.aggregate_id, aggregate.state.last_sequence, body, receipt.etag)
