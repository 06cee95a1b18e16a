"""An erased aggregate leaves every read model and every subscriber of its service, without anybody listing them."""

import base64
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime
from typing import Literal
from uuid import UUID, uuid4

import pytest
from azure.cosmos.aio import DatabaseProxy

from cosmos_changefeed import ChangeFeedProcessor, ProcessorOptions, StartFrom
from cosmos_outbox.inbox.deliveries import Collected
from cosmos_outbox.inbox.entry import After
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.inbox.form import EntryForm
from cosmos_outbox.inbox.reading import TolerantReader
from cosmos_outbox.inbox.set_aside import Delivery
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.operations.erasing import Eraser
from cosmos_outbox.outbox.aggregate import Aggregate, AggregateState
from cosmos_outbox.outbox.event import DomainEvent, Timestamp
from cosmos_outbox.settings.names import Names
from cosmos_outbox.wiring.erasing import wire_eraser
from cosmos_outbox.wiring.service import Service, Wired
from devstack.testing import Service as Server
from devstack.testing import eventually
from tests.support.azure import database_of
from tests.support.contacts import ORIGIN

GUEST, OTHER = "Quirina", "Otto"
BROKER = "Endpoint=sb://127.0.0.1;SharedAccessKeyName=n;SharedAccessKey=a2V5;UseDevelopmentEmulator=true;"


class VisitState(AggregateState):
    id: UUID
    created_at: Timestamp
    guest: str
    deleted: bool = False


class VisitPlanned(DomainEvent):
    action: Literal["VisitPlanned"] = "VisitPlanned"
    visit_id: UUID
    guest: str


class GuestChanged(DomainEvent):
    action: Literal["GuestChanged"] = "GuestChanged"
    visit_id: UUID
    guest: str


class VisitDeleted(DomainEvent):
    action: Literal["VisitDeleted"] = "VisitDeleted"
    visit_id: UUID


class Visit(Aggregate[VisitState]):
    aggregate_type = "visit"
    state_type = VisitState
    created_event = VisitPlanned
    changed_events = {"guest": GuestChanged, "deleted": VisitDeleted}  # noqa: RUF012 - as a service writes it

    @property
    def aggregate_id(self) -> str:
        return str(self._state.id)

    @property
    def deleted(self) -> bool:
        return self._state.deleted

    def rename(self, guest: str, *, at: datetime) -> None:
        self._set("guest", guest, at)

    def delete(self, *, at: datetime) -> None:
        self._set("deleted", True, at)


class Entry(TolerantReader):
    guest: str


def project(entry: Entry, event: Event) -> After[Entry] | None:
    return None if event.action == "VisitPlanned" else After(Entry(guest=event.data["guest"]))


FORM = EntryForm(Entry, search={"guest": lambda entry: entry.guest}, sorted_by=["guest"])
service = Service("visits", [Visit], Names(database="visits", container="visits", topic="visit-events"))
LISTS = [
    service.read_model(name, of=Visit, form=FORM, state_of=Entry.model_validate, project=project)
    for name in ("visit-list", "visit-board")
]
service.erases(
    Visit,
    delete=Visit.delete,
    remains=lambda state: state.model_copy(update={"guest": ""}),
    kept=[VisitDeleted],
)


@service.effect("visit-mails", of=Visit)
async def mail(event: Event) -> None:
    """None is sent here."""


@pytest.fixture
async def database(cosmos_server: Server) -> AsyncIterator[DatabaseProxy]:
    async with database_of(cosmos_server, service) as made:
        yield made


@pytest.fixture
async def wired(cosmos_server: Server, database: DatabaseProxy) -> AsyncIterator[Wired]:
    made = service.wire(
        {"COSMOS": cosmos_server.connection_string, "COSMOS_DATABASE": database.id, "SERVICEBUS": BROKER}
    )
    async with made.outbox.resources:
        yield made


async def documents(database: DatabaseProxy) -> list[str]:
    """Every document of every container as text, with what it holds in base64."""
    return [
        json.dumps(item) + base64.b64decode(item.get("body") or "").decode()
        async for container in database.list_containers()
        async for item in database.get_container_client(container["id"]).read_all_items()
    ]


async def planned(wired: Wired, guest: str) -> Visit:
    visit = Visit(VisitState(id=uuid4(), created_at=utc_now(), guest="nobody"), is_new=True)
    await wired.aggregates.create(visit, ORIGIN)
    at = utc_now()
    return (
        await wired.aggregates.change(Visit, visit.aggregate_id, lambda it: it.rename(guest, at=at), ORIGIN)
    ).aggregate


async def receive(wired: Wired, visit: Visit, guest: str) -> None:
    """Both read models have it, its effect has run, and each has a message nobody can read."""
    data = {
        "id": str(uuid4()), "visitId": visit.aggregate_id, "action": "GuestChanged", "sequence": 2,
        "createdAt": utc_now().isoformat(), "guest": guest,
    }  # fmt: skip
    unreadable = json.dumps({"visitId": visit.aggregate_id, "guest": guest}).encode()
    for name, each in wired.subscriptions.items():
        of = {"aggregateType": "visit"}
        for number, body in enumerate((json.dumps(data).encode(), unreadable)):
            await each.subscriber.receiver.receive(Delivery(name, f"{data['id']}-{number}", number, body, of))


async def caught_up(wired: Wired) -> bool:
    status = await wired.outbox.observer.status()
    return bool(status.leases) and not any(lease.lag for lease in status.leases)


def eraser_of(wired: Wired) -> Eraser:
    async def collected() -> Collected:
        return Collected(0, emptied=True)

    return replace(wire_eraser(wired, service.erasables[0]), collect=collected)


async def test_nothing_of_the_person_is_left_in_any_container(wired: Wired, database: DatabaseProxy) -> None:
    gone, stays = await planned(wired, GUEST), await planned(wired, OTHER)
    await receive(wired, gone, GUEST)
    await receive(wired, stays, OTHER)
    held = [text for text in await documents(database) if GUEST in text]
    assert len(held) >= 2 + len(LISTS) + 3, "state, event, entries and records"

    async def forward(*_: object) -> None:
        """All of it."""

    outbox = wired.outbox
    async with ChangeFeedProcessor(
        outbox.feed, outbox.leases, forward, instance_name="relay", lease_prefix=outbox.reading.lease_prefix,
        options=ProcessorOptions(poll_interval=0.05, acquire_interval=0.1, start=StartFrom.beginning()),
    ):  # fmt: skip
        await eventually(lambda: caught_up(wired))
        steps = [step async for step in eraser_of(wired).erase(gone.key, patience_seconds=20)]
        again = [step async for step in eraser_of(wired).erase(gone.key, patience_seconds=20)]

    assert [text for text in await documents(database) if GUEST in text] == []
    assert "entries emptied" in steps
    assert "no entry to empty" in again
    await receive(wired, gone, GUEST)
    late = [text for text in await documents(database) if GUEST in text]
    assert late == [], "what comes late brings nothing back"
    for each in LISTS:
        page = await wired.read_model(each).listing.page([], "guest", 10, None)
        assert [item.state.guest for item in page.items] == [OTHER]
