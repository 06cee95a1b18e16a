"""Contacts over HTTP: a request becomes a checked value, and a result becomes an answer."""

from typing import Any
from uuid import UUID

import azure.functions as func
from pydantic.alias_generators import to_camel

from application.contacts import Revision
from application.errors import ContactNotFound
from domain.contact import Contact
from domain.errors import ContactDeleted
from domain.values import ContactDetails, ContactState
from infra.http import operations, request, responses
from infra.http.answering import Answering
from infra.http.errors import InvalidRequest
from infra.http.merge_patch import merge_patch
from infra.http.responses import etag_header, json_response
from infra.http.validation import known, validated
from outbox.aggregate import STORED
from outbox.unit_of_work import Page, Receipt, Versioned

answering = Answering([(ContactNotFound, 404, "Not found"), (ContactDeleted, 404, "Not found")])

OPERATIONS = [
    operations.Names(
        aggregate_type=Contact.aggregate_type, path="contacts", owner="contactId", count="parkedContacts"
    )
]
"""What operators call each type of aggregate."""


def contact_id(req: func.HttpRequest) -> UUID:
    """The id in the path. Raises ContactNotFound when the id is no UUID, since no contact can have such an id."""
    found = request.path_id(req)
    if found is None:
        raise ContactNotFound("there is no such contact: the id in the path must be a UUID")
    return found


def contact_details(req: func.HttpRequest) -> ContactDetails:
    """The contact in the body. Raises InvalidRequest."""
    return validated(ContactDetails, request.json_object(req, "application/json"))


def revision(req: func.HttpRequest) -> Revision:
    """The JSON Merge Patch in the body, as a revision. Both this call and the revision raise InvalidRequest."""
    patch = request.json_object(req, "application/merge-patch+json", "application/json")
    return lambda current: revised(current, patch)


def revised(current: ContactDetails, patch: dict[str, Any]) -> ContactDetails:
    """A contact with a JSON Merge Patch (RFC 7396) applied. Raises InvalidRequest when what is patched breaks a rule.

    A property that the patch leaves alone was stored, and stays as it is, even if its rules have changed since.
    """
    document = merge_patch(known(current), patch)
    try:
        return validated(ContactDetails, document)
    except InvalidRequest as invalid:
        patched = [error for error in invalid.errors if error.field.partition(".")[0] in patch]
        if patched:
            raise InvalidRequest(*patched) from None
    return ContactDetails.model_validate(document, by_alias=True, by_name=False, context=STORED)


def created(receipt: Receipt[Contact], *, replayed: bool = False) -> func.HttpResponse:
    """201 with the contact, its location and its version; ``replayed``: the answer to an earlier request."""
    headers = {"Location": f"/api/contacts/{receipt.aggregate.id}"} | etag_header(receipt.etag)
    if replayed:
        headers["Idempotency-Replayed"] = "true"
    return json_response(201, _view(receipt.aggregate.state), headers)


def changed(receipt: Receipt[Contact]) -> func.HttpResponse:
    """200 with the contact and its version."""
    return json_response(200, _view(receipt.aggregate.state), etag_header(receipt.etag))


def found(req: func.HttpRequest, stored: Versioned[Contact]) -> func.HttpResponse:
    """200 with the contact and its version, or 304 when the caller has that version."""
    return responses.stored(req, _view(stored.aggregate.state), stored.etag)


def listed(page: Page[Contact]) -> func.HttpResponse:
    """200 with a page of contacts and the token of the next page."""
    items = [_view(contact.state) for contact in page.items]
    return json_response(200, {"items": items, "continuationToken": page.continuation_token})


def _view(contact: ContactState) -> dict[str, Any]:
    """A contact as callers see it: without the fields that only this service or a later version of it needs."""
    document = known(contact)
    shown = ("id", *(to_camel(name) for name in ContactDetails.model_fields), "createdAt", "modifiedAt")
    return {name: document[name] for name in shown} | {"sequence": contact.last_sequence}
