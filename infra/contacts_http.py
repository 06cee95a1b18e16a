"""Contacts over HTTP: the requests, the representation, and the answer to each refusal."""

from uuid import UUID

from cosmos_outbox import Timestamp
from cosmos_outbox.http import Resource
from domain.contact import Contact
from domain.errors import ContactDeleted
from domain.values import ContactDetails


class ContactView(ContactDetails):
    """A contact as callers see it: without the fields that only this service needs."""

    id: UUID
    created_at: Timestamp
    modified_at: Timestamp | None


contacts = Resource(
    "contacts",
    Contact,
    new=ContactDetails,
    create=Contact.create,
    change=Contact.revise,
    delete=Contact.delete,
    view=ContactView,
    errors={ContactDeleted: 404},
)
