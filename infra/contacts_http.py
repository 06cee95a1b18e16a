"""Contacts over HTTP: a request becomes a checked value, and a result becomes an answer."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import azure.functions as func
from pydantic.alias_generators import to_camel

from application.contacts import Revision
from application.errors import ContactNotFound
from cosmos_outbox.http import Answering, InvalidRequest, Resource, known, request, validated
from cosmos_outbox.http.merge_patch import merge_patch
from cosmos_outbox.http.validation import unknown_nulls
from cosmos_outbox.outbox.aggregate import STORED
from domain.contact import Contact
from domain.errors import ContactDeleted
from domain.values import ContactDetails
from infra.bootstrap import service


def _check_load() -> None:
    service().outbox.shedder.check()


answering = Answering(
    [(ContactNotFound, 404, "Not found"), (ContactDeleted, 404, "Not found")], check_load=_check_load
)


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
    document, wrong = merge_patch(known(current), patch), [*unknown_nulls(ContactDetails, patch)]
    try:
        details = validated(ContactDetails, document)
    except InvalidRequest as invalid:
        wrong += [error for error in invalid.errors if _is_about(error.field, patch)]
    else:
        if not wrong:
            return details
    if wrong:
        raise InvalidRequest(*wrong)
    return ContactDetails.model_validate(document, by_alias=True, by_name=False, context=STORED)


def _is_about(field: str, patch: Mapping[str, Any]) -> bool:
    """An unknown name is a field as it is, dots included; the empty name is told as ``body``."""
    return field in patch or field.partition(".")[0] in patch or (field == "body" and "" in patch)


def view(contact: Contact) -> dict[str, Any]:
    """A contact as callers see it: without the fields that only this service or a later version of it needs."""
    document = known(contact.state)
    shown = ("id", *(to_camel(name) for name in ContactDetails.model_fields), "createdAt", "modifiedAt")
    return {name: document[name] for name in shown} | {"sequence": contact.state.last_sequence}


resource = Resource("contacts", view)
"""The answers to calls on contacts."""
