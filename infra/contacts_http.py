"""Contacts over HTTP: a request becomes a checked value, and a result becomes an answer."""

from typing import Any
from uuid import UUID

from pydantic.alias_generators import to_camel

from application.contacts import Revision
from application.errors import ContactNotFound
from cosmos_outbox.http import Answering, KeyedRequest, Request, known, request, validated
from cosmos_outbox.http.shown import Shown
from cosmos_outbox.http.validation import patched
from domain.contact import Contact
from domain.errors import ContactDeleted
from domain.values import ContactDetails
from infra.bootstrap import service


def _check_load() -> None:
    service().outbox.shedder.check()


answering = Answering(
    [(ContactNotFound, 404, "Not found"), (ContactDeleted, 404, "Not found")], check_load=_check_load
)


def contact_id(req: Request) -> UUID:
    """The id in the path. Raises ContactNotFound when the id is no UUID, since no contact can have such an id."""
    found = request.path_id(req)
    if found is None:
        raise ContactNotFound("there is no such contact: the id in the path must be a UUID")
    return found


def keyed_change(req: Request) -> KeyedRequest | None:
    """The request with its Idempotency-Key, if it has one. Raises InvalidRequest."""
    if (key := request.idempotency_key(req)) is None:
        return None
    settings, has_body = service().settings, req.method != "DELETE"
    return request.keyed_change(req, settings, key, answering.refusal_status, has_body=has_body)


def contact_details(req: Request) -> ContactDetails:
    """The contact in the body. Raises InvalidRequest."""
    return validated(ContactDetails, request.json_object(req, "application/json"))


def revision(req: Request) -> Revision:
    """The JSON Merge Patch in the body, as a revision. Both this call and the revision raise InvalidRequest."""
    patch = request.json_object(req, "application/merge-patch+json", "application/json")
    return lambda current: revised(current, patch)


def revised(current: ContactDetails, patch: dict[str, Any]) -> ContactDetails:
    """A contact with a JSON Merge Patch applied. Raises InvalidRequest when what is patched breaks a rule."""
    return patched(ContactDetails, current, patch)


def view(contact: Contact) -> dict[str, Any]:
    """A contact as callers see it: without the fields that only this service or a later version of it needs."""
    document = known(contact.state)
    shown = ("id", *(to_camel(name) for name in ContactDetails.model_fields), "createdAt", "modifiedAt")
    return {name: document[name] for name in shown} | {"sequence": contact.state.last_sequence}


shown = Shown(view)
"""The answers to calls on contacts."""
