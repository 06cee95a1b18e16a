"""A team's own documents, and the contact service, are judged by what they declare."""

from datetime import datetime
from random import Random

import pytest

from cosmos_outbox import (
    After,
    DocumentSource,
    EntrySchema,
    ExistingContainer,
    Named,
    Names,
    Service,
    TolerantReader,
)
from cosmos_outbox.cosmos.store.container import StoreFailed
from cosmos_outbox.sources.http import HttpSource
from domain.contact import Contact
from domain.values import ContactDetails
from examples.subscriber.service import service as mailing
from examples.subscriber.sqlite_store import SqliteFile
from examples.subscriber.tests.test_mailing_list_simulated import PEOPLE
from infra.bootstrap import service as contacts
from outbox_simulation import Commands, Publishes, simulate


class Row(TolerantReader):
    seats: int


FORM = EntrySchema(Row, search={"seats": lambda row: str(row.seats)}, sorted_by=["seats"])
OWN = ExistingContainer("/tenantId", {"booking": "/lastSequence"})


async def book(service: Service, luck: Random, *, published: int | None = None) -> None:
    """A new booking, or one that is there with other seats; ``published``: what the event says instead."""
    transactions, name, seats = service().outbox, f"b-{luck.randrange(3)}", luck.randint(1, 8)
    try:
        found = await transactions.container(OWN_NAME).read(name, "t-1")
    except StoreFailed as error:
        raise error.failure.error() from error
    document = {"id": name, "tenantId": "t-1", "type": "booking", "seats": seats}
    async with transactions.transaction("t-1") as tx:
        if found is None:
            tx.create(document)
        else:
            tx.replace({**found, **document}, if_match=found["_etag"])
        tx.event("Seated", of=("booking", name), data={"seats": seats if published is None else published})


OWN_NAME = "own-bookings"


def declared() -> Service:
    service = Service("own", names=Names(database="own", container=OWN_NAME, topic="own-events"), own=OWN)
    service.read_model(
        "rows", of="booking", form=FORM, state_of=Row.model_validate,
        project=lambda row, event: After(Row.model_validate(event.data)),
        first=lambda event: Row.model_validate(event.data), source=DocumentSource({"/type": "booking"}),
    )  # fmt: skip
    return service


@pytest.mark.long
def test_documents_of_a_teams_own_are_judged_too() -> None:
    service = declared()

    async def right(luck: Random, at: datetime) -> None:
        await book(service, luck)

    simulate(service, right, seeds=3)


@pytest.mark.long
def test_an_event_that_differs_from_the_teams_own_document_is_found() -> None:
    service = declared()

    async def wrong(luck: Random, at: datetime) -> None:
        await book(service, luck, published=9)

    with pytest.raises(AssertionError, match="read model: rows"):
        simulate(service, wrong, seeds=3)


def test_a_proxys_404_that_is_believed_loses_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HttpSource, "_is_not_found", lambda *_: True)
    with pytest.raises(AssertionError, match="read model: mailing-list"):
        simulate(mailing, PEOPLE, seeds=20)


def details(luck: Random) -> ContactDetails:
    name = {"firstName": luck.choice(["Jane", "John"]), "lastName": "Doe"}
    return ContactDetails.model_validate(
        {"name": name, "email": luck.choice(["a@contoso.com", "b@contoso.com"])}
    )


def test_the_contact_service_keeps_what_it_declares() -> None:
    change = [
        lambda contact, luck, at: contact.revise(details(luck), at=at),
        lambda contact, luck, at: contact.delete(at=at),
    ]
    simulate(
        contacts,
        Commands(Contact, create=lambda luck, at: Contact.create(details(luck), at=at), change=change),
        seeds=5,
    )


def test_what_does_not_fit_the_service_is_refused() -> None:
    commands = Commands(Contact, create=lambda luck, at: Contact.create(details(luck), at=at))
    publishes = Publishes("booking", first=lambda luck: ("Seated", {"seats": luck.randint(1, 8)}))
    with pytest.raises(ValueError, match="say what the users of own do"):
        simulate(declared())
    with pytest.raises(ValueError, match="say what the users of own do"):
        simulate(declared(), publishes)
    with pytest.raises(ValueError, match="guests only subscribes"):
        simulate(Service("guests", publishes=False, store=SqliteFile(Named("GUESTS", "guests.db"))), commands)
