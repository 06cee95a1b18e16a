"""HTTP in, commands out; results and errors back as HTTP. Bad input gets no further than this module.

Every answer that is not a success is ``application/problem+json`` (RFC 9457) and names each field that is wrong.
"""

import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from uuid import UUID, uuid4

import azure.functions as func
from pydantic_core import from_json

from application.ports import ETag, Origin, Page, Receipt, Versioned
from application.validation import validated
from domain.errors import (
    ChangeTooLarge,
    ConcurrentChange,
    ContactNotFound,
    ContactsError,
    FieldError,
    IdempotencyKeyReused,
    InvalidRequest,
    Misconfigured,
    NotDelivered,
    NotParked,
    PreconditionFailed,
    RequestInProgress,
    RequestTooLarge,
    StillUnsendable,
    Throttled,
    Unavailable,
    UnsupportedMediaType,
)
from domain.values import ContactDetails, ContactState

MAX_BODY_BYTES = 64 * 1024
DEFAULT_PAGE_SIZE = 50
MAX_PAGE_SIZE = 100

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_ENTITY_TAG = re.compile(r'"[\x21\x23-\x7e\x80-\xff]*"')
_QUOTED_KEY = re.compile(r'"(.*)"')
_KEY = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,255}")
_NUMBER = re.compile(r"[0-9]{1,9}")
_CORRELATION_ID = re.compile(r"[A-Za-z0-9._:|=-]{1,128}")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
"""https://www.w3.org/TR/trace-context/#traceparent-header"""

STATUS_OF: list[tuple[type[ContactsError], int, str]] = [
    (UnsupportedMediaType, 415, "Unsupported media type"),
    (RequestTooLarge, 413, "Content too large"),
    (InvalidRequest, 400, "Invalid request"),
    (ContactNotFound, 404, "Not found"),
    (NotParked, 404, "Not found"),
    (StillUnsendable, 409, "Conflict"),
    (PreconditionFailed, 412, "Precondition failed"),
    (ConcurrentChange, 409, "Conflict"),
    (RequestInProgress, 409, "Conflict"),
    (IdempotencyKeyReused, 422, "Idempotency key reused"),
    (ChangeTooLarge, 413, "Content too large"),
    (Throttled, 429, "Too many requests"),
    (Unavailable, 503, "Service unavailable"),
    (NotDelivered, 503, "Service unavailable"),
    (Misconfigured, 500, "Service misconfigured"),
]
"""The first that fits decides, so a class comes before its base."""

_log = logging.getLogger("contacts.http")

Respond = Callable[[], Awaitable[func.HttpResponse]]


async def answer(respond: Respond) -> func.HttpResponse:
    """Run a request; any error of ours becomes its problem document, and nothing of anybody's becomes a stack trace."""
    try:
        return await respond()
    except ContactsError as error:
        return problem_from_error(error)
    except Exception:  # noqa: BLE001 - the edge: whatever it is, the caller gets an answer and the log the trace
        _log.exception("a request failed in a way that nobody foresaw: please report it")
        return problem(500, "Internal error", "The service failed. The request may have had an effect.")


def origin(request: func.HttpRequest) -> Origin:
    """What caused this request, by its headers; a header that is not well-formed is ignored."""
    correlation_id = request.headers.get("x-correlation-id", "")
    traceparent = request.headers.get("traceparent", "")
    return Origin(
        correlation_id=correlation_id if _CORRELATION_ID.fullmatch(correlation_id) else str(uuid4()),
        traceparent=traceparent if _TRACEPARENT.fullmatch(traceparent) else None,
    )


def contact_id(request: func.HttpRequest) -> UUID:
    """The id in the path. Raises ContactNotFound when it is no UUID: no contact can have it."""
    text = request.route_params.get("id", "")
    if not _UUID.fullmatch(text):
        raise ContactNotFound("there is no such contact: its id in the path must be a UUID")
    return UUID(text)


def contact_details(request: func.HttpRequest) -> ContactDetails:
    """The contact in the body. Raises InvalidRequest."""
    return validated(ContactDetails, json_object(request, {"application/json"}))


def merge_patch(request: func.HttpRequest) -> dict[str, Any]:
    """The JSON Merge Patch in the body. Raises InvalidRequest."""
    return json_object(request, {"application/merge-patch+json", "application/json"})


def if_match(request: func.HttpRequest) -> frozenset[ETag]:
    """The versions that the caller allows; none: any. Raises InvalidRequest when the header pins no version."""
    header = request.headers.get("If-Match")
    if header is None:
        return frozenset()
    tags = [tag.strip() for tag in header.split(",")]
    if not all(_ENTITY_TAG.fullmatch(tag) for tag in tags):
        raise InvalidRequest(
            FieldError(
                "If-Match", 'must be the ETag of an answer as it was, in quotes (no "*", no weak W/ one)'
            )
        )
    return frozenset(tags)


def idempotency_key(request: func.HttpRequest) -> str | None:
    """The caller's ``Idempotency-Key``, in quotes as in the IETF draft or bare. Raises InvalidRequest.

    https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/
    """
    header = request.headers.get("Idempotency-Key")
    if header is None:
        return None
    quoted = _QUOTED_KEY.fullmatch(header.strip())
    key = quoted[1] if quoted else header.strip()
    if not _KEY.fullmatch(key):
        raise InvalidRequest(
            FieldError(
                "Idempotency-Key", "must be 1 to 255 visible ASCII characters without quotes, such as a UUID"
            )
        )
    return key


def page_request(request: func.HttpRequest) -> tuple[int, str | None]:
    """Page size and continuation token. Raises InvalidRequest."""
    text = request.params.get("pageSize", str(DEFAULT_PAGE_SIZE))
    if not (_NUMBER.fullmatch(text) and 1 <= int(text) <= MAX_PAGE_SIZE):
        raise InvalidRequest(FieldError("pageSize", f"must be a number from 1 to {MAX_PAGE_SIZE}"))
    token = request.params.get("continuationToken")
    if token == "":
        raise InvalidRequest(
            FieldError("continuationToken", "must not be empty: leave it out for the first page")
        )
    return int(text), token


def created(receipt: Receipt, *, replayed: bool = False) -> func.HttpResponse:
    """201 with the contact, where it is, and its version; ``replayed``: as an earlier request was answered."""
    headers = {"Location": f"/api/contacts/{receipt.contact.id}"} | _etag(receipt.etag)
    if replayed:
        headers["Idempotency-Replayed"] = "true"
    return json_response(201, _view(receipt.contact), headers)


def changed(receipt: Receipt) -> func.HttpResponse:
    """200 with the contact and its version."""
    return json_response(200, _view(receipt.contact), _etag(receipt.etag))


def deleted() -> func.HttpResponse:
    """204."""
    return func.HttpResponse(status_code=204)


def found(request: func.HttpRequest, stored: Versioned) -> func.HttpResponse:
    """200 with the contact and its version, or 304 when the caller has that version."""
    known = request.headers.get("If-None-Match")
    if known is not None:
        tags = {
            tag.strip().removeprefix("W/") for tag in known.split(",")
        }  # weak comparison: RFC 9110, 13.1.2
        if "*" in tags or stored.etag in tags:
            return func.HttpResponse(status_code=304, headers=_etag(stored.etag))
    return json_response(200, _view(stored.contact), _etag(stored.etag))


def listed(page: Page) -> func.HttpResponse:
    """200 with some contacts and the token of the next page."""
    items = [_view(contact) for contact in page.items]
    return json_response(200, {"items": items, "continuationToken": page.continuation_token}, {})


def healthy() -> func.HttpResponse:
    """200: the service can serve."""
    return json_response(200, {"status": "healthy"}, {})


def no_such_call(request: func.HttpRequest, allowed: Mapping[re.Pattern[str], str]) -> func.HttpResponse:
    """405 when the path is one of ours and only the method is not, else 404."""
    path = request.route_params.get("path", "").strip("/")
    for pattern, methods in allowed.items():
        if pattern.fullmatch(path):
            detail = f"{request.method} is not a method of this path; it takes {methods}."
            return problem(405, "Method not allowed", detail, headers={"Allow": methods})
    return problem(404, "Not found", "There is nothing at this path: contacts are at /api/contacts.")


def problem_from_error(error: ContactsError) -> func.HttpResponse:
    """The problem document of an error."""
    status, title = next((status, title) for kind, status, title in STATUS_OF if isinstance(error, kind))
    if status >= 500:
        _log.error("answered %d: %s", status, error)
    if isinstance(error, Misconfigured):
        return problem(status, title, "The service is not set up as it must be; its log says what to change.")
    headers = {}
    if isinstance(error, Throttled | Unavailable | NotDelivered):
        headers["Retry-After"] = str(max(1, round(error.retry_after_seconds)))
    errors = error.errors if isinstance(error, InvalidRequest) else ()
    return problem(status, title, str(error), errors=errors, headers=headers)


def problem(
    status: int,
    title: str,
    detail: str,
    *,
    errors: tuple[FieldError, ...] = (),
    headers: Mapping[str, str] | None = None,
) -> func.HttpResponse:
    """A problem document (RFC 9457) with ``errors``, a list of ``{"field", "reason"}``."""
    document = {
        "type": "about:blank",
        "title": title,
        "status": status,
        "detail": detail,
        "errors": [{"field": error.field, "reason": error.reason} for error in errors],
    }
    return json_response(status, document, dict(headers or {}), mimetype="application/problem+json")


def json_object(request: func.HttpRequest, media_types: set[str]) -> dict[str, Any]:
    media_type = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if media_type not in media_types:
        wanted = " or ".join(sorted(media_types))
        raise UnsupportedMediaType(FieldError("Content-Type", f"must be {wanted}"))
    body = request.get_body()
    if len(body) > MAX_BODY_BYTES:
        raise RequestTooLarge(FieldError("body", f"must not be over {MAX_BODY_BYTES} bytes"))
    try:
        data = from_json(body, allow_inf_nan=False)  # its nesting is bounded, json.loads' is not
    except ValueError as error:
        raise InvalidRequest(FieldError("body", f"must be JSON in UTF-8: {error}")) from None
    if not isinstance(data, dict):
        raise InvalidRequest(FieldError("body", "must be a JSON object"))
    return data


def _view(contact: ContactState) -> dict[str, Any]:
    """A contact as callers see it: without what only this service needs."""
    details = contact.model_dump(
        mode="json", by_alias=True, exclude={"id", "deleted", "deleted_at", "last_sequence"}
    )
    return {"id": str(contact.id), **details}


def _etag(etag: ETag | None) -> dict[str, str]:
    return {} if etag is None else {"ETag": etag}


def json_response(
    status: int,
    document: Mapping[str, Any],
    headers: Mapping[str, str],
    *,
    mimetype: str = "application/json",
) -> func.HttpResponse:
    return func.HttpResponse(
        json.dumps(document), status_code=status, headers=dict(headers), mimetype=mimetype
    )
