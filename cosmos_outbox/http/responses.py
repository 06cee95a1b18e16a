"""An answer shows an aggregate with its version, or tells a problem (RFC 9457); what is large may go as gzip.

Each version has one ETag all the same. A strong ETag names the very bytes, of which each coding has others (RFC 9110,
8.8.3), and a change names that ETag in ``If-Match``: so what has one goes as it is; it is one resource, and small. A
weak one, or none, fits every coding. Why not the platform: ``docs/internals/decisions/0028``.
"""

import gzip
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from email.utils import format_datetime
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlsplit

from cosmos_outbox.http import problems
from cosmos_outbox.http.conditions import ETAG, is_known, told_modified
from cosmos_outbox.http.listing import AS_OF
from cosmos_outbox.http.message import Answer, Request
from cosmos_outbox.http.problems import FieldError
from cosmos_outbox.outbox.aggregate import Aggregate
from cosmos_outbox.outbox.idempotency import ChangeAnswer
from cosmos_outbox.outbox.unit_of_work import ETag, Page, Receipt, Versioned
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


def written_header(aggregate_id: str, sequence: int) -> dict[str, str]:
    """What a write wrote, up to the aggregate's last event: a search of a read model can wait until it shows that."""
    return {"Written": f"{aggregate_id}:{sequence}"} if aggregate_id.isascii() else {}


def unless_known(request: Request, answer: Answer, modified: datetime | None = None) -> Answer:
    """The answer, or 304 when the caller has the version in its ``ETag``, or what was not modified since.

    The 304 has all headers of the answer, its type too: a cache puts them in the place of those that it has kept
    (RFC 9111, 3.2).
    """
    if not is_known(request, answer.headers["ETag"], modified):
        return answer
    return replace(answer, status=304, body=b"")


def no_content() -> Answer:
    """204: done; the answer has no body."""
    return Answer(204)


A = TypeVar("A", bound=Aggregate[Any])

REPLAYED = {"Idempotency-Replayed": "true"}
"""On an answer to an earlier request with this key."""


@dataclass(frozen=True)
class Shown(Generic[A]):
    """The answers to calls on aggregates of one type."""

    view: Callable[[A], Mapping[str, Any]]
    """The aggregate as callers see it."""

    def created(self, req: Request, receipt: Receipt[A], *, replayed: bool = False) -> Answer:
        """201 with the aggregate, its location and its version; ``replayed``: the answer to an earlier request.

        The location is below the path that was called, wherever the API is mounted; the Functions host takes a slash
        too many at its end.
        """
        location = f"{urlsplit(req.url).path.rstrip('/')}/{quote(receipt.aggregate.aggregate_id, safe='')}"
        headers = {"Location": location} | _of(receipt)
        headers |= written_header(receipt.aggregate.aggregate_id, receipt.aggregate.state.last_sequence)
        if replayed:
            headers |= REPLAYED
        return json_response(201, self._body(receipt), headers)

    def changed(self, receipt: Receipt[A]) -> Answer:
        """200 with the aggregate and its version."""
        return json_response(200, self._body(receipt), _of(receipt))

    def answered(self, aggregate_id: str, answered: ChangeAnswer[A]) -> Answer:
        """As :meth:`changed`, of a change with a key; id and sequence alone when the aggregate has changed since."""
        if answered.receipt is None:
            answer = json_response(200, {"id": aggregate_id, "sequence": answered.sequence})
        else:
            answer = self.changed(answered.receipt)
        answer = answer.with_headers(written_header(aggregate_id, answered.sequence))
        return answer.with_headers(REPLAYED) if answered.replayed else answer

    def deleted(self, aggregate_id: str, answered: ChangeAnswer[A]) -> Answer:
        """204."""
        answer = no_content().with_headers(written_header(aggregate_id, answered.sequence))
        return answer.with_headers(REPLAYED if answered.replayed else {})

    def found(self, req: Request, stored: Versioned[A]) -> Answer:
        """200 with the aggregate and its version, or 304 when the caller has that, or what was not modified since.

        The caller's own cache may keep it, and asks before each use. No shared cache may: a key in ``x-functions-key``
        does not tell it that the answer is for one caller (RFC 9111, 3.5, names ``Authorization`` alone).
        """
        modified = told_modified(stored.aggregate)
        headers = _version(stored.etag, modified) | {"Cache-Control": "private, no-cache"}
        return unless_known(req, json_response(200, self._body(stored), headers), modified)

    def listed(self, page: Page[A], next_link: str | None, as_of: datetime | None) -> Answer:
        """200 with a page of aggregates, the token and the address of the next page, and the list's ``asOf``."""
        items = [self._body(Versioned(*each)) for each in zip(page.items, page.etags, strict=True)]
        body = {"items": items, "continuationToken": page.continuation_token, "nextLink": next_link}
        return json_response(200, body | {AS_OF: None if as_of is None else f"{as_of:%Y-%m-%dT%H:%M:%SZ}"})

    def _body(self, of: Versioned[A] | Receipt[A]) -> dict[str, Any]:
        """The aggregate with its version, which is left out when others have replaced it since."""
        return {**self.view(of.aggregate), **({} if of.etag is None else {ETAG: of.etag})}


def _of(receipt: Receipt[Any]) -> dict[str, str]:
    return _version(receipt.etag, told_modified(receipt.aggregate))


def _version(etag: ETag | None, modified: datetime | None) -> dict[str, str]:
    """The headers of a version; one that is not known has none."""
    dated = {} if modified is None else {"Last-Modified": format_datetime(modified, usegmt=True)}
    return dated if etag is None else {"ETag": etag, **dated}


LEAST_BYTES = 1_400
"""Less fits one packet as it is."""

_LEVEL = 3
"""A page of 50 entries shrinks to less than a fifth in 0.1 ms; level 6 saves a tenth more, for almost twice that."""
_TEXT = re.compile(r"text/.*|application/(.*\+)?(json|xml)")
_WEIGHT = re.compile(r"\s*q=(0(?:\.\d{0,3})?|1(?:\.0{0,3})?)\s*", re.IGNORECASE)


def packed(request: Request, answer: Answer) -> Answer:
    """The answer to who reads, as the caller takes it; HEAD and a 304 tell the same as GET."""
    headers = answer.headers
    is_strong = not headers.get("ETag", "W/").startswith("W/")
    if is_strong or "Content-Encoding" in headers:
        return answer
    varying = ", ".join(filter(None, (headers.get("Vary"), "Accept-Encoding")))
    told = answer.with_headers({"Vary": varying})
    if len(answer.body) < LEAST_BYTES or not _TEXT.fullmatch(answer.media_type):
        return told
    if not takes_gzip(request) or _is_lured(request):
        return told
    body = gzip.compress(answer.body, _LEVEL, mtime=0)
    return replace(told.with_headers({"Content-Encoding": "gzip"}), body=body)


def takes_gzip(request: Request) -> bool:
    """Whether the caller asks for gzip, and not rather for what is not packed (RFC 9110, 12.5.3)."""
    weights = dict(_weighed(each) for each in request.headers.get("Accept-Encoding", "").split(","))
    weight = weights.get("gzip", weights.get("*", 0.0))
    return weight > 0 and weight >= weights.get("identity", 0.0)


def _is_lured(request: Request) -> bool:
    """Whether a page of another site makes a browser ask that signs in by cookie.

    The page gets no answer, but may choose a part of it (``nextLink``): to who sees the length of what is packed, that
    tells letters of the rest, guess by guess (BREACH).
    """
    return "Cookie" in request.headers and request.headers.get("Sec-Fetch-Site") == "cross-site"


def _weighed(element: str) -> tuple[str, float]:
    """A coding and its weight; 0 for one that cannot be read."""
    coding, semicolon, rest = element.partition(";")
    found = _WEIGHT.fullmatch(rest)
    return coding.strip().lower(), float(found[1]) if found else 0.0 if semicolon else 1.0
