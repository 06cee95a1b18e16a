"""An upload is answered at once, and a link says how far its import is."""

from dataclasses import dataclass, replace
from urllib.parse import urlsplit
from uuid import UUID

from cosmos_outbox import Origin
from cosmos_outbox.errors import AggregateNotFound
from cosmos_outbox.http import Answer, FieldError, InvalidRequest, Request, json_response, request
from examples.imports.accepting import Import
from examples.imports.service import service

MAX_BYTES = 10 * 1024 * 1024
POLL_SECONDS = "2"
KEY = "Idempotency-Key"


@dataclass(frozen=True)
class Asked:
    """POST /imports?name=people.csv with the file as its body."""

    name: str
    content: bytes
    origin: Origin
    key: str | None
    """A digest of the caller and his key."""


def upload(req: Request) -> Asked:
    """Raises InvalidRequest."""
    name = request.query(req, "name").get("name", "")
    if not 1 <= len(name) <= 200 or not name.isprintable():
        raise InvalidRequest(
            FieldError("name", "must be the file's name, of 1 to 200 characters on one line")
        )
    if not 1 <= len(req.body) <= MAX_BYTES:
        raise InvalidRequest(FieldError("body", f"must be the file, of 1 to {MAX_BYTES} bytes"))
    key = request.idempotency_key(req)
    if key is not None:  # that it is the same file is known by the file's own digest
        key = request.keyed(replace(req, body=b"null"), service().outbox.settings, key).key_digest
    return Asked(name, req.body, request.origin(req), key)


def import_id(req: Request) -> UUID:
    """GET /imports/{id}. Raises AggregateNotFound."""
    found = request.path_id(req)
    if found is None:
        raise AggregateNotFound("there is no such import")
    return found


def accepted(req: Request, found: Import) -> Answer:
    """202 and a link."""
    link = f"{urlsplit(req.url).path.rstrip('/')}/{found.file.aggregate_id}"
    return json_response(202, found.document, {"Retry-After": POLL_SECONDS, "Location": link})


def shown(found: Import) -> Answer:
    """200, with Retry-After while there is more to come."""
    return json_response(200, found.document, {"Retry-After": POLL_SECONDS} if found.is_open else {})
