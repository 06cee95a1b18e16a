"""Seats that a team holds in documents of its own until a time: what happened to each, and how often."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from azure.cosmos.aio import CosmosClient

from cosmos_outbox.cosmos.own.transaction import Transaction, Transactions
from cosmos_outbox.cosmos.store.item import Item
from cosmos_outbox.outbox.deadlines import Deadlines
from cosmos_outbox.outbox.errors import Throttled, Unavailable
from cosmos_outbox.outbox.unit_of_work import Origin
from cosmos_outbox.settings.names import Names
from cosmos_outbox.settings.own_container import OnDue, OwnContainer
from cosmos_outbox.wiring.deadlines import deadlines_of
from cosmos_outbox.wiring.service import Service
from tests.support.losses import Failing, Fate, ProcessDied
from tests.support.offers import NOON
from tests.support.own import BOOKINGS
from tests.support.reactions import no_loss

HOLD = "/hold/until"
EVENT_TTL_SECONDS = 600
_ROUNDS = 6


def let_go(seat: dict[str, Any], tx: Transaction, at: datetime) -> None:
    """What is due: the seat is free again."""
    if seat["id"].startswith("broken"):
        raise RuntimeError("a bug, and what it failed on")
    tx.replace(seat | {"hold": None, "state": "free"}, if_match=seat["_etag"])
    tx.event("SeatFreed", of=("seat", seat["id"]))


def declared(*paths: str, on_due: OnDue = let_go, default_ttl: int = -1) -> Service:
    """A service with a container of these partition key paths."""
    own = OwnContainer(list(paths), {"seat": "/lastSequence", "note": None}, default_ttl, due={HOLD: on_due})
    names = Names(database="unknown", container=BOOKINGS, topic="unknown")
    return Service("seats", names=names, own=own)


KINDS = {
    "one path": declared("/tenantId"),
    "hierarchical": declared("/tenantId", "/row"),
    "nested": declared("/owner/tenantId", "/owner/row", "/day"),
}


@dataclass
class Seats:
    """A container of seats, and any number of instances that meet their deadlines, whose replicas lag."""

    client: CosmosClient
    database: str
    service: Service
    fate: Fate = field(default_factory=no_loss)
    now: datetime = NOON
    monotonic: float = 0.0

    @property
    def key(self) -> Any:
        values: list[Any] = ["acme", 7, True]
        count = len(self.service.paths.paths)
        return values[:count] if count > 1 else "acme"

    def doing(self, on_due: OnDue) -> "Seats":
        """The same, by a version in which something else happens."""
        own = self.service.own
        assert own is not None
        return replace(self, service=replace(self.service, own=replace(own, due={HOLD: on_due})))

    def container(self) -> Failing:
        made = Failing(self.client, self.database, BOOKINGS, paths=self.service.paths)
        made.fate = self.fate
        return made

    def transactions(self, container: Failing | None = None) -> Transactions:
        """As whoever holds seats has them; without a container of its own, nothing is lost."""
        if container is None:
            container = self.container()
            container.fate = no_loss()
        assert self.service.own is not None
        return Transactions(container, self.service.own, EVENT_TTL_SECONDS, clock=lambda: self.now)

    def instance(self, container: Failing | None = None) -> Deadlines:
        """Another process: it has no session."""
        container = container or self.container()
        unused: Any = None
        transactions = self.transactions(container)
        made = deadlines_of((), container, unused, transactions, lambda: self.now)
        assert made is not None, "a seat can be due"
        made.time = lambda: self.monotonic
        return made

    def seat(self, name: str, until: str | None, **more: Any) -> Item:
        key = self.service.paths.fields(self.key)
        return {
            "id": name,
            **key,
            "type": "seat",
            "state": "held",
            "hold": until and {"until": until},
            **more,
        }

    async def run(self, *steps: Callable[[Transaction], object], over: Failing | None = None) -> None:
        """A transaction of these steps."""
        async with self.transactions(over)(self.key, origin=Origin("test")) as tx:
            for step in steps:
                step(tx)

    async def put(self, *items: Item) -> None:
        """New documents, in one transaction."""
        async with self.transactions()(self.key) as tx:
            for item in items:
                tx.create(item)

    async def hold(self, until: datetime | None = NOON, name: str = "") -> str:
        """A seat that is held, in one transaction with its event."""
        name = name or str(uuid4())
        seat = self.seat(name, None if until is None else until.isoformat())
        await self.run(lambda tx: tx.create(seat), lambda tx: tx.event("SeatHeld", of=("seat", name)))
        return name

    async def change(self, name: str, action: str, **changed: Any) -> None:
        """As the team's own code does it."""
        seat = await self.document(name)
        await self.run(
            lambda tx: tx.replace(seat | changed, if_match=seat["_etag"]),
            lambda tx: tx.event(action, of=("seat", name)),
        )

    async def pay(self, name: str) -> None:
        """What cancels the deadline."""
        await self.change(name, "SeatPaid", state="paid", hold=None)

    async def extend(self, name: str, by: timedelta) -> None:
        """What moves it."""
        await self.change(name, "HoldExtended", hold={"until": (NOON + by).isoformat()})

    @property
    def proxy(self) -> Any:
        return self.client.get_database_client(self.database).get_container_client(BOOKINGS)

    async def document(self, name: str) -> Item:
        return dict(await self.proxy.read_item(name, self.key))

    async def history(self, name: str) -> list[str]:
        """What its events say, in their order."""
        query = self.proxy.query_items("SELECT * FROM c", partition_key=self.key)
        found = [item async for item in query if item.get("aggregateId") == name]
        events = sorted((each["data"] for each in found), key=lambda each: each["sequence"])
        assert [each["sequence"] for each in events] == [*range(1, len(events) + 1)]
        return [each["action"] for each in events]

    async def until_met(self) -> None:
        """Beat after beat, by whichever process is there, until a round ends that finds nothing to do."""
        instance = self.instance()
        for _ in range(_ROUNDS):
            try:
                if not await instance.meet():
                    return
            except ProcessDied:
                instance = self.instance()
            except (Throttled, Unavailable):
                pass
        raise AssertionError("never met")


def at(seconds: float) -> str:
    """As a team writes it."""
    return (NOON + timedelta(seconds=seconds)).isoformat()
