"""What the users of a service do, as its test declares it: all that a declaration does not tell.

Each draws what it needs from the ``luck`` that it is given and takes the time from ``at``, so that a seed is the same
run again.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Any, Generic, TypeVar

from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.outbox.aggregate import Aggregate
from cosmos_outbox.outbox.unit_of_work import Origin, Receipt
from cosmos_outbox.testing.simulation.subject import SimulatedClient, Told, Wish
from cosmos_outbox.wiring.service import Service, Wired

A = TypeVar("A", bound=Aggregate[Any])

Call = Callable[[Random, datetime], Awaitable[None]]
"""A call of the user's own: it uses ``service()`` as his program does."""

NEW_SHARE = 0.2
"""Of what is asked for, while there are fewer aggregates than a plan has."""


@dataclass(frozen=True)
class Commands(Generic[A]):
    """What can be done to the aggregates of a type, for :func:`simulate`.

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
    """Each changes an aggregate that is there. May be called again with the same luck, on a newer state."""
    refuses: tuple[type[Exception], ...] = ()
    """The errors with which an aggregate refuses a change: nothing is stored then."""

    async def act(self, client: SimulatedClient, here: "Here | None" = None) -> None:
        """One thing that a client wants. ``here``: the same, as the version does it that takes the request."""
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
        answer = await client.ask(self._change(client, about.removeprefix(self._prefix), here))
        if answer.status == 404 or (answer.body or {}).get("deleted"):
            client.etags.pop(about, None)

    @property
    def _prefix(self) -> str:
        return f"{self.kind.aggregate_type}/"

    def _creation(self, client: SimulatedClient, here: "Here") -> Wish:
        seed = client.chance.random()

        async def create(wired: Wired, origin: Origin) -> Told:
            made = here(wired).create(_luck(seed), utc_now())
            return _told(await wired.aggregates.create(made, origin), 201)

        return Wish(client.next_name(), "create", create)

    def _change(self, client: SimulatedClient, aggregate_id: str, here: "Here") -> Wish:
        seed, number = client.chance.random(), client.chance.randrange(len(self.change))

        async def run(wired: Wired, origin: Origin) -> Told:
            at, mine = utc_now(), here(wired)
            change = mine.change[number % len(mine.change)]
            try:
                receipt = await wired.aggregates.change(
                    mine.kind, aggregate_id, lambda each: change(each, _luck(seed), at), origin
                )
            except mine.refuses:
                return Told(409)
            return _told(receipt, 200)

        return Wish(client.next_name(), "change", run, aggregate=aggregate_id)


Here = Callable[[Wired], Commands[Any]]


@dataclass(frozen=True)
class Release:
    """The service as its last release has it, and what its users do there, for :func:`simulate`."""

    service: Service
    commands: Sequence[Commands[Any]]
    """For each type of aggregates that there was, in the order of those of the new version."""

    def __post_init__(self) -> None:
        if any(not each.change for each in self.commands):
            raise ValueError(
                "the last release changed its aggregates: name its changes in Commands(change=[...])"
            )


@dataclass(frozen=True)
class Calls:
    """Calls of the user's own, of which only the events are looked at."""

    call: Call

    async def act(self, client: SimulatedClient) -> None:
        """One call."""
        seed = client.chance.random()

        async def run(wired: Wired, origin: Origin) -> Told:
            await self.call(_luck(seed), utc_now())
            return Told(200, body={})

        await client.ask(Wish(client.next_name(), "change", run))


def _luck(seed: float) -> Random:
    return Random(seed)  # noqa: S311 - no secret


def _told(receipt: Receipt[Any], status: int) -> Told:
    aggregate = receipt.aggregate
    body = {"events": receipt.events, "deleted": aggregate.deleted}
    return Told(status, aggregate.aggregate_id, aggregate.state.last_sequence, body, receipt.etag)
