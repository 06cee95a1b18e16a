"""Declares the contact service: what it is called, what it keeps, and its directory."""

from application.directory import entry_of, first, project
from cosmos_outbox import Named, Names, Service
from domain.contact import Contact
from infra.directory import FORM

service = Service(
    "contacts",
    aggregates=[Contact],
    names=Names(
        database="contacts",
        container="contacts",
        topic="contact-events",
        leases="leases",
        parked="parked-events",
        claims="claims",
        set_aside="set-aside",
    ),
    untyped=Contact.aggregate_type,  # the article's events do not name their aggregate's type
)

DIRECTORY = service.read_model(
    "contact-directory",
    of=Contact,
    form=FORM,
    state_of=entry_of,
    project=project,
    first=first,
    subscription=Named("SERVICEBUS_SUBSCRIPTION", "contact-directory"),
    container=Named("COSMOS_DIRECTORY_CONTAINER", "directory"),
)
