"""Builds responses: an aggregate with its version, or a problem (RFC 9457); large ones are compressed with gzip.

Compression never changes an ETag. A strong ETag identifies the exact bytes, which differ by coding (RFC 9110, 8.8.3),
and changes send it in ``If-Match``: so a response with a strong ETag, one small resource, is never compressed. A weak
one, or none, fits every coding. Reasons against compression by the platform: ``docs/internals/decisions/0028``.
"""

import gzip
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from email.utils import format_datetime
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlsplit

from cosmos_outbox.http import problems
from cosmos_outbox.http.listing import AS_OF
from cosmos_outbox.http.message import Answer, Request
from cosmos_outbox.http.problems import FieldError
from cosmos_outbox.http.request import ETAG, is_known, settled_modification
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox.aggregate import Aggregate, ChangeAnswer, ETag, Page, Receipt, Versioned
from cosmos_outbox.telemetry import correlation


def json_response(
    status: int,
    document: Mapping[str, Any],
    headers: Mapping[str, str] | None = None,
    *,
    media_type: str = "application/json",
) -> Answer:
    """Returns a JSON document with its status and headers."""
    return Answer(status, json.dumps(document).encode(), headers or {}, media_type)


def problem(
    status: int,
    title: str,
    detail: str,
    *,
    errors: Sequence[FieldError] = (),
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """Returns a problem document with ``errors``, a list of ``{"field", "code", "reason"}``."""
    document = {
        "type": problems.type_of(title),
        "title": title,
        "status": status,
        "detail": detail,
        "errors": [
            {"field": each.field, "code": each.code, "reason": each.reason}
            for each in (error.described() for error in errors)
        ],
        "correlationId": correlation.current(),
    }
    return json_response(status, document, headers, media_type="application/problem+json")


def written_header(aggregate_id: str, sequence: int) -> dict[str, str]:
    """Returns the header ``Written`` with the aggregate's last event: a search of a read model can wait for it."""
    return {"Written": f"{aggregate_id}:{sequence}"} if aggregate_id.isascii() else {}


def unless_known(request: Request, answer: Answer, modified: datetime | None = None) -> Answer:
    """Returns the response, or 304 if the caller has its ``ETag`` or it was not modified since the caller's date.

    The 304 has all headers of the response, with its type: a cache replaces its stored headers by them
    (RFC 9111, 3.2).
    """
    if not is_known(request, answer.headers["ETag"], modified):
        return answer
    return replace(answer, status=304, body=b"")


def no_content() -> Answer:
    """Returns 204, without a body."""
    return Answer(204)


A = TypeVar("A", bound=Aggregate[Any])

REPLAYED = {"Idempotency-Replayed": "true"}
"""The header of a response that repeats that of an earlier request with the same key."""


@dataclass(frozen=True)
class Representation(Generic[A]):
    """Builds the responses to calls on aggregates of one type."""

    view: Callable[[A], Mapping[str, Any]]
    """The aggregate as callers see it."""

    def created(self, req: Request, receipt: Receipt[A], *, replayed: bool = False) -> Answer:
        """Returns 201 with the aggregate, its location and its version; ``replayed``: for a repeated request.

        The location is below the path of the request, wherever the API is mounted; the Functions host accepts a
        trailing slash, which is removed.
        """
        location = f"{urlsplit(req.url).path.rstrip('/')}/{quote(receipt.aggregate.aggregate_id, safe='')}"
        headers = {"Location": location} | _of(receipt)
        headers |= written_header(receipt.aggregate.aggregate_id, receipt.aggregate.state.last_sequence)
        if replayed:
            headers |= REPLAYED
        return json_response(201, self._body(receipt), headers)

    def changed(self, receipt: Receipt[A]) -> Answer:
        """Returns 200 with the aggregate and its version."""
        return json_response(200, self._body(receipt), _of(receipt))

    def answered(self, aggregate_id: str, answered: ChangeAnswer[A]) -> Answer:
        """As :meth:`changed`, for a change with a key; only id and sequence if the aggregate has changed since."""
        if answered.receipt is None:
            answer = json_response(200, {"id": aggregate_id, "sequence": answered.sequence})
        else:
            answer = self.changed(answered.receipt)
        answer = answer.with_headers(written_header(aggregate_id, answered.sequence))
        return answer.with_headers(REPLAYED) if answered.replayed else answer

    def deleted(self, aggregate_id: str, answered: ChangeAnswer[A]) -> Answer:
        """Returns 204."""
        answer = no_content().with_headers(written_header(aggregate_id, answered.sequence))
        return answer.with_headers(REPLAYED if answered.replayed else {})

    def found(self, req: Request, stored: Versioned[A]) -> Answer:
        """Returns 200 with the aggregate and its version, or 304 if that matches the caller's conditions.

        Only private caches may store it, and must revalidate. A shared cache would not know from ``x-functions-key``
        that the response is for one caller (RFC 9111, 3.5, covers only ``Authorization``).
        """
        modified = settled_modification(stored.aggregate)
        headers = _version(stored.etag, modified) | {"Cache-Control": "private, no-cache"}
        return unless_known(req, json_response(200, self._body(stored), headers), modified)

    def listed(self, page: Page[A], next_link: str | None, as_of: datetime | None) -> Answer:
        """Returns 200 with a page of aggregates, token and address of the next page, and the list's ``asOf``."""
        items = [self._body(Versioned(*each)) for each in zip(page.items, page.etags, strict=True)]
        body = {"items": items, "continuationToken": page.continuation_token, "nextLink": next_link}
        return json_response(200, body | {AS_OF: None if as_of is None else f"{as_of:%Y-%m-%dT%H:%M:%SZ}"})

    def _body(self, of: Versioned[A] | Receipt[A]) -> dict[str, Any]:
        """The aggregate with its version, which is omitted if another writer has replaced it since."""
        return {**self.view(of.aggregate), **({} if of.etag is None else {ETAG: of.etag})}


def _of(receipt: Receipt[Any]) -> dict[str, str]:
    return _version(receipt.etag, settled_modification(receipt.aggregate))


def _version(etag: ETag | None, modified: datetime | None) -> dict[str, str]:
    """Returns the headers of a version; unknown parts are omitted."""
    dated = {} if modified is None else {"Last-Modified": format_datetime(modified, usegmt=True)}
    return dated if etag is None else {"ETag": etag, **dated}


LEAST_BYTES = 1_400
"""A smaller body fits one network packet uncompressed."""

_LEVEL = 3
"""A page of 50 entries shrinks to less than a fifth in 0.1 ms; level 6 saves a tenth more, for almost twice that."""
_TEXT = re.compile(r"text/.*|application/(.*\+)?(json|xml)")
_WEIGHT = re.compile(r"\s*q=(0(?:\.\d{0,3})?|1(?:\.0{0,3})?)\s*", re.IGNORECASE)


def packed(request: Request, answer: Answer) -> Answer:
    """Compresses the response to a read if the caller accepts gzip; HEAD and a 304 get the headers of GET."""
    headers = answer.headers
    is_strong = not headers.get("ETag", "W/").startswith("W/")
    if is_strong or "Content-Encoding" in headers:
        return answer
    varying = ", ".join(filter(None, (headers.get("Vary"), "Accept-Encoding")))
    varied = answer.with_headers({"Vary": varying})
    if len(answer.body) < LEAST_BYTES or not _TEXT.fullmatch(answer.media_type):
        return varied
    if not takes_gzip(request) or _is_lured(request):
        return varied
    body = gzip.compress(answer.body, _LEVEL, mtime=0)
    return replace(varied.with_headers({"Content-Encoding": "gzip"}), body=body)


def takes_gzip(request: Request) -> bool:
    """Whether the caller accepts gzip and does not prefer ``identity`` (RFC 9110, 12.5.3)."""
    weights = dict(_weighed(each) for each in request.headers.get("Accept-Encoding", "").split(","))
    weight = weights.get("gzip", weights.get("*", 0.0))
    return weight > 0 and weight >= weights.get("identity", 0.0)


def _is_lured(request: Request) -> bool:
    """Whether a page of another site made the browser send this request, with a cookie that signs it in.

    The page cannot read the response, but controls a part of it (``nextLink``): an observer of the compressed length
    could then guess the rest letter by letter (BREACH).
    """
    return "Cookie" in request.headers and request.headers.get("Sec-Fetch-Site") == "cross-site"


def _weighed(element: str) -> tuple[str, float]:
    """Returns a coding and its weight; a malformed weight is 0."""
    coding, semicolon, rest = element.partition(";")
    found = _WEIGHT.fullmatch(rest)
    return coding.strip().lower(), float(found[1]) if found else 0.0 if semicolon else 1.0
