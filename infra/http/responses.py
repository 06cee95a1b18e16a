"""Every answer that is not a success is a problem document (RFC 9457); the others are JSON with their headers."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import azure.functions as func

from infra import correlation
from infra.http.errors import FieldError
from outbox.unit_of_work import ETag


def json_response(
    status: int,
    document: Mapping[str, Any],
    headers: Mapping[str, str] | None = None,
    *,
    mimetype: str = "application/json",
) -> func.HttpResponse:
    """A JSON document with its status and headers."""
    return func.HttpResponse(
        json.dumps(document), status_code=status, headers=dict(headers or {}), mimetype=mimetype
    )


def problem(
    status: int,
    title: str,
    detail: str,
    *,
    errors: Sequence[FieldError] = (),
    headers: Mapping[str, str] | None = None,
) -> func.HttpResponse:
    """A problem document with ``errors``, a list of ``{"field", "reason"}``."""
    document = {
        "type": "about:blank",
        "title": title,
        "status": status,
        "detail": detail,
        "errors": [{"field": error.field, "reason": error.reason} for error in errors],
        "correlationId": correlation.current(),
    }
    return json_response(status, document, headers, mimetype="application/problem+json")


def etag_header(etag: ETag | None) -> dict[str, str]:
    """The ``ETag`` header; no header when the version is not known."""
    return {} if etag is None else {"ETag": etag}


def not_modified(request: func.HttpRequest, etag: ETag) -> func.HttpResponse | None:
    """304 when the caller has that version (``If-None-Match``), else None."""
    known = request.headers.get("If-None-Match")
    if known is None:
        return None
    tags = {tag.strip().removeprefix("W/") for tag in known.split(",")}  # weak comparison: RFC 9110, 13.1.2
    if "*" in tags or etag in tags:
        return func.HttpResponse(status_code=304, headers=etag_header(etag))
    return None


def healthy() -> func.HttpResponse:
    """200: the service can serve."""
    return json_response(200, {"status": "healthy"})


def no_content() -> func.HttpResponse:
    """204: done; the answer has no body."""
    return func.HttpResponse(status_code=204)
