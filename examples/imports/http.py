"""The two calls, for whoever serves them: an upload is answered at once, and a link says how far its import is."""

from dataclasses import replace
from urllib.parse import urlsplit

from cosmos_outbox.errors import AggregateNotFound
from cosmos_outbox.http import Answer, FieldError, InvalidRequest, Request, json_response, request
from examples.imports.accepting import Import, accept, find
from examples.imports.files import Files
from examples.imports.service import service

MAX_BYTES = 10 * 1024 * 1024
POLL_SECONDS = "2"
KEY = "Idempotency-Key"


async def upload(req: Request, files: Files) -> Answer:
    """POST /imports?name=people.csv with the file as its body: 202 and a link."""
    name = request.query(req, "name").get("name", "")
    if not 1 <= len(name) <= 200 or not name.isprintable():
        raise InvalidRequest(
            FieldError("name", "must be the file's name, of 1 to 200 characters on one line")
        )
    if not 1 <= len(req.body) <= MAX_BYTES:
        raise InvalidRequest(FieldError("body", f"must be the file, of 1 to {MAX_BYTES} bytes"))
    key = request.idempotency_key(req)
    if (
        key is not None
    ):  # it belongs to its caller; that it is the same file is known by the file's own digest
        key = request.keyed(replace(req, body=b"null"), service().settings, key).key_digest
    return _shown(req, await accept(files, name, req.body, request.origin(req), key=key), 202)


async def status(req: Request) -> Answer:
    """GET /imports/{id}: 200, with Retry-After while there is more to come."""
    file_id = request.path_id(req)
    found = None if file_id is None else await find(file_id, request.origin(req))
    if found is None:
        raise AggregateNotFound("there is no such import")
    return _shown(req, found, 200)


def _shown(req: Request, found: Import, status: int) -> Answer:
    headers = {"Retry-After": POLL_SECONDS} if found.is_open else {}
    if status == 202:
        path = urlsplit(req.url).path.rstrip("/")
        headers["Location"] = f"{path}/{found.file.aggregate_id}"
    return json_response(status, found.document, headers)
