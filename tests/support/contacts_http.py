"""The parts of the calls on contacts, for tests of the edge: as ``cosmos_outbox/http/calls.py`` puts them together."""

from collections.abc import Callable
from typing import Any

from cosmos_outbox.http import Request, request, validated
from cosmos_outbox.http.answering import Answering, status_of
from cosmos_outbox.http.calls import JSON, MERGE_PATCH
from cosmos_outbox.http.responses import Representation
from cosmos_outbox.http.validation import patched
from domain.contact import Contact
from domain.values import ContactDetails
from infra.contacts_http import contacts

answering = Answering(status_of(contacts.errors))
"""It asks no service how far behind the relay is."""
shown = Representation(contacts.shown)


def view(contact: Contact) -> dict[str, Any]:
    return dict(contacts.shown(contact))


def contact_details(req: Request) -> ContactDetails:
    return validated(ContactDetails, request.json_object(req, JSON))


def revision(req: Request) -> Callable[[ContactDetails], ContactDetails]:
    patch = request.json_object(req, MERGE_PATCH, JSON)
    return lambda current: revised(current, patch)


def revised(current: ContactDetails, patch: dict[str, Any]) -> ContactDetails:
    """Of details alone: nothing is shown that cannot be set."""
    return patched(ContactDetails, current, {}, patch)
