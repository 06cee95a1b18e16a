"""Offers that run out unless they are accepted before: what happened to each, and how often."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar
from uuid import uuid4

from azure.cosmos.aio import CosmosClient

from cosmos_outbox import Aggregate, AggregateState, Timestamp, WireModel
from cosmos_outbox.cosmos.aggregates.aggregates import Aggregates
from cosmos_outbox.cosmos.aggregates.deadlines import Deadlines, deadlines_of
from cosmos_outbox.cosmos.aggregates.unit_of_work import CosmosUnitOfWork, Lifetimes
from cosmos_outbox.outbox.aggregate import Origin
from cosmos_outbox.outbox.errors import Throttled, Unavailable
from tests.support.losses import Failing, Fate, ProcessDied
from tests.support.reactions import no_loss

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
_ROUNDS = 6


class Refused(Exception):
    """The offer is closed."""


class Terms(WireModel):
    expires_at: Timestamp | None = None


class OfferState(Terms, AggregateState):
    id: str
    created_at: Timestamp
    closed_as: str = ""
    deleted: bool = False


class Offer(Aggregate[OfferState]):
    aggregate_type: ClassVar[str] = "offer"
    state_type: ClassVar[type[AggregateState]] = OfferState
    created_event, created_payload = "OfferMade", Terms
    changed_events: ClassVar[Mapping[str, str]] = {
        "expires_at": "OfferExtended", "closed_as": "OfferClosed", "deleted": "OfferDeleted"
    }  # fmt: skip
    forgets: ClassVar[bool] = False
    """Whether it has the bug that it stays due."""

    @property
    def aggregate_id(self) -> str:
        return self.state.id

    @property
    def deleted(self) -> bool:
        return self.state.deleted

    @property
    def due(self) -> datetime | None:
        return None if self.state.closed_as else self.state.expires_at

    def on_due(self, *, at: datetime) -> None:
        if self.state.id.startswith("broken"):
            raise RuntimeError("a bug, and what it failed on")
        if not self.forgets:
            self._set("closed_as", "expired", at)

    @classmethod
    def make(cls, expires_at: datetime | None = NOON, name: str = "") -> "Offer":
        return cls(OfferState(id=name or str(uuid4()), created_at=NOON, expires_at=expires_at), is_new=True)

    def accept(self) -> None:
        if self.state.closed_as:
            raise Refused(self.state.closed_as)
        self._set("closed_as", "accepted", NOON)

    def extend(self, until: datetime | None) -> None:
        self._set("expires_at", until, NOON)

    def delete(self) -> None:
        self._set("deleted", True, NOON)


class PatientOffer(Offer):
    """As a later version of the code has it: an offer never runs out."""

    @property
    def due(self) -> datetime | None:
        return None


@dataclass
class Offers:
    """A container of offers, and any number of instances that meet their deadlines, whose replicas lag."""

    client: CosmosClient
    names: tuple[str, str]
    fate: Fate = field(default_factory=no_loss)
    now: datetime = NOON
    monotonic: float = 0.0

    def container(self) -> Failing:
        made = Failing(self.client, *self.names)
        made.fate = self.fate
        return made

    def instance(self, kind: type[Offer] = Offer, container: Failing | None = None) -> Deadlines:
        """Another process: it has no session."""
        container = container or self.container()
        made = deadlines_of([kind], container, aggregates_over(container), clock=lambda: self.now)
        assert made is not None, "an offer can be due"
        made.time = lambda: self.monotonic
        return made

    def aggregates(self) -> Aggregates:
        """The container of those who make and change offers: nothing is lost."""
        container = self.container()
        container.fate = no_loss()
        return aggregates_over(container)

    async def made(self, expires_at: datetime | None = NOON, name: str = "") -> str:
        offer = Offer.make(expires_at, name)
        await self.aggregates().create(offer, Origin("test"))
        return offer.aggregate_id

    async def change(self, name: str, change: Any) -> None:
        await self.aggregates().change(Offer, name, change, Origin("test"))

    async def document(self, name: str) -> dict[str, Any]:
        proxy = self.client.get_database_client(self.names[0]).get_container_client(self.names[1])
        return dict(await proxy.read_item(name, name))

    async def history(self, name: str) -> list[str]:
        """What its events say, in their order: what it was closed as, else the event's name."""
        proxy = self.client.get_database_client(self.names[0]).get_container_client(self.names[1])
        found = [each["data"] async for each in proxy.query_items("SELECT * FROM c", partition_key=name)]
        events = sorted((each for each in found if "action" in each), key=lambda each: each["sequence"])
        assert [each["sequence"] for each in events] == [*range(1, len(events) + 1)]
        return [each.get("closedAs", each["action"]) for each in events]

    async def until_met(self) -> None:
        """Beat after beat, by whichever process is there, until a round ends that finds nothing to do."""
        instance = self.instance()
        for _ in range(_ROUNDS):
            try:
                if not await instance.fire_due():
                    return
            except ProcessDied:
                instance = self.instance()
            except (Throttled, Unavailable):
                pass
        raise AssertionError("never met")


def aggregates_over(container: Failing) -> Aggregates:
    def open_unit_of_work(origin: Origin) -> CosmosUnitOfWork:
        return CosmosUnitOfWork(container, "test", origin, Lifetimes(600, 600))

    unused: Any = None
    return Aggregates(open_unit_of_work, unused)


LATER = NOON + timedelta(minutes=30)
