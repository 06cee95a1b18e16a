"""Contacts over HTTP: what callers may say, and what they see."""

from typing import Any
from uuid import UUID

import azure.functions as func

from application.contacts import Revision
from application.errors import ContactNotFound
from domain.contact import Contact
from domain.errors import ContactDeleted
from domain.values import ContactDetails, ContactState
from infra.http import operations, request
from infra.http.answering import Answering
from infra.http.merge_patch import merge_patch
from infra.http.responses import etag_header, json_response, not_modified
from infra.http.validation import validated
from outbox.unit_of_work import Page, Receipt, Versioned

answering = Answering([(ContactNotFound, 404, "Not found"), (ContactDeleted, 404, "Not found")])

OPERATIONS = [
    operations.Names(
        aggregate_type=Contact.aggregate_type, path="contacts", owner="contactId", count="parkedContacts"
    )
]
"""What operators call each type of aggregate."""


def contact_id(req: func.HttpRequest) -> UUID:
    """The id in the path. Raises ContactNotFound when it is no UUID: no contact can have it."""
    found = request.path_id(req)
    if found is None:
        raise ContactNotFound("there is no such contact: its id in the path must be a UUID")
    return found


def contact_details(req: func.HttpRequest) -> ContactDetails:
    """The contact in the body. Raises InvalidRequest."""
    return validated(ContactDetails, request.json_object(req, "application/json"))


def revision(req: func.HttpRequest) -> Revision:
    """The JSON Merge Patch in the body, as a revision that raises InvalidRequest itself. Raises InvalidRequest."""
    patch = request.json_object(req, "application/merge-patch+json", "application/json")
    return lambda current: revised(current, patch)


def revised(current: ContactDetails, patch: dict[str, Any]) -> ContactDetails:
    """A contact with a JSON Merge Patch (RFC 7396) applied. Raises InvalidRequest when that breaks a rule."""
    document = current.model_dump(mode="json", by_alias=True, exclude_none=True)
    return validated(ContactDetails, merge_patch(document, patch))


def created(receipt: Receipt[Contact], *, replayed: bool = False) -> func.HttpResponse:
    """201 with the contact, where it is, and its version; ``replayed``: as an earlier request was answered."""
    headers = {"Location": f"/api/contacts/{receipt.aggregate.id}"} | etag_header(receipt.etag)
    if replayed:
        headers["Idempotency-Replayed"] = "true"
    return json_response(201, _view(receipt.aggregate.state), headers)


def changed(receipt: Receipt[Contact]) -> func.HttpResponse:
    """200 with the contact and its version."""
    return json_response(200, _view(receipt.aggregate.state), etag_header(receipt.etag))


def found(req: func.HttpRequest, stored: Versioned[Contact]) -> func.HttpResponse:
    """200 with the contact and its version, or 304 when the caller has that version."""
    same = not_modified(req, stored.etag)
    return same or json_response(200, _view(stored.aggregate.state), etag_header(stored.etag))


def listed(page: Page[Contact]) -> func.HttpResponse:
    """200 with some contacts and the token of the next page."""
    items = [_view(contact.state) for contact in page.items]
    return json_response(200, {"items": items, "continuationToken": page.continuation_token})


def _view(contact: ContactState) -> dict[str, Any]:
    """A contact as callers see it: without what only this service needs."""
    details = contact.model_dump(
        mode="json", by_alias=True, exclude={"id", "deleted", "deleted_at", "last_sequence"}
    )
    return {"id": str(contact.id), **details}
