"""Every answer that is not a success is a problem document (RFC 9457); the others are JSON with their headers."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from email.utils import format_datetime
from typing import Any

from cosmos_outbox.http import problems
from cosmos_outbox.http.conditions import is_known
from cosmos_outbox.http.errors import FieldError
from cosmos_outbox.http.message import Answer, Request
from cosmos_outbox.outbox.unit_of_work import ETag
from cosmos_outbox.telemetry import correlation


def json_response(
    status: int,
    document: Mapping[str, Any],
    headers: Mapping[str, str] | None = None,
    *,
    media_type: str = "application/json",
) -> Answer:
    """A JSON document with its status and headers."""
    return Answer(status, json.dumps(document).encode(), headers or {}, media_type)


def problem(
    status: int,
    title: str,
    detail: str,
    *,
    errors: Sequence[FieldError] = (),
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """A problem document with ``errors``, a list of ``{"field", "code", "reason"}``."""
    document = {
        "type": problems.type_of(title),
        "title": title,
        "status": status,
        "detail": detail,
        "errors": [
            {"field": each.field, "code": each.code, "reason": each.reason}
            for each in (error.told() for error in errors)
        ],
        "correlationId": correlation.current(),
    }
    return json_response(status, document, headers, media_type="application/problem+json")


def etag_header(etag: ETag | None) -> dict[str, str]:
    """The ``ETag`` header; no header when the version is not known."""
    return {} if etag is None else {"ETag": etag}


def last_modified_header(modified: datetime | None) -> dict[str, str]:
    """The ``Last-Modified`` header; no header when there is no date."""
    return {} if modified is None else {"Last-Modified": format_datetime(modified, usegmt=True)}


def written_header(aggregate_id: str, sequence: int) -> dict[str, str]:
    """What a write wrote, up to the aggregate's last event: a search of a read model can wait until it shows that."""
    return {"Written": f"{aggregate_id}:{sequence}"} if aggregate_id.isascii() else {}


def stored(
    request: Request, document: Mapping[str, Any], etag: ETag, modified: datetime | None = None
) -> Answer:
    """200 with a document and its version, or 304 when the caller has that version, or what was not modified since.

    The caller's own cache may keep it, and asks before each use. No shared cache may: a key in ``x-functions-key`` does
    not tell it that the answer is for one caller (RFC 9111, 3.5, names ``Authorization`` alone).
    """
    headers = etag_header(etag) | last_modified_header(modified) | {"Cache-Control": "private, no-cache"}
    return unless_known(request, json_response(200, document, headers), modified)


def unless_known(request: Request, answer: Answer, modified: datetime | None = None) -> Answer:
    """The answer, or 304 when the caller has the version in its ``ETag``, or what was not modified since.

    The 304 has all headers of the answer, its type too: a cache puts them in the place of those that it has kept
    (RFC 9111, 3.2).
    """
    if not is_known(request, answer.headers["ETag"], modified):
        return answer
    return replace(answer, status=304, body=b"")


def healthy() -> Answer:
    """200: the service can serve."""
    return json_response(200, {"status": "healthy"})


def no_content() -> Answer:
    """204: done; the answer has no body."""
    return Answer(204)
