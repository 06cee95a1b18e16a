"""The parameters and headers of every API: where each stands, what it means, and an example."""

from typing import Any

from cosmos_outbox.http.components import Components, Schema
from cosmos_outbox.http.request import CORRELATION_HEADER, DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE

TEXT: Schema = {"type": "string"}
UUID_TEXT: Schema = {"type": "string", "format": "uuid"}
_KEY = r"[!#-\[\]-~]{1,255}"
TAG = r'(W/)?"[!#-~]*"'
"""An entity tag."""
TAGS: Schema = TEXT | {"pattern": rf"^(\*|{TAG}(, ?{TAG})*)$"}
_ID = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_DATE = r"^(Mon|Tue|Wed|Thu|Fri|Sat|Sun), [0-2][1-8] (Jan|Mar|Jul|Oct) 20\d\d [01]\d:[0-5]\d:[0-5]\d GMT$"
"""Some of those that there are: a pattern cannot count days."""
_PARAMETERS: dict[str, tuple[str, Schema, str, Any]] = {
    "id": ("path", UUID_TEXT, "The id; another text than a UUID is answered 404.", UUID_TEXT),
    "pageSize": (
        "query", {"type": "integer", "minimum": 1, "maximum": MAX_PAGE_SIZE, "default": DEFAULT_PAGE_SIZE},
        "How many a page may hold.", 10,
    ),
    "continuationToken": ("query", TEXT | {"minLength": 1}, "The token of the page before, if there is one.", None),
    "If-Match": (
        "header", TAGS,
        "Change only this version: the ETag of an answer. 412 when it is another.", "*",
    ),
    "If-None-Match": (
        "header", TEXT,
        "A version that the caller has, the ETag of an answer: reading it is a 304, changing it a 412.", '"1"',
    ),
    "If-Modified-Since": (
        "header", TEXT, "304 when it was not changed since: the Last-Modified of an answer.",
        "Thu, 01 Jan 1970 00:00:00 GMT",
    ),
    "If-Unmodified-Since": (
        "header", TEXT | {"pattern": _DATE}, "412 when it was changed since: the Last-Modified of an answer.",
        "Fri, 28 Oct 2089 13:59:59 GMT",
    ),
    "ids": (
        "query", TEXT | {"pattern": rf"^{_ID}(,{_ID}){{0,{MAX_PAGE_SIZE - 1}}}$"},
        "Only these, with commas between them.", "7b1c5d4e-0f62-4c0b-9a55-2f6f3c6a9d10",
    ),
    "changedSince": (
        "query", {"type": "string", "format": "date-time"},
        "Only what was written since then by the store's clock, and is there: a list before tells it as asOf.",
        "2026-03-01T12:00:00Z",
    ),
    "Idempotency-Key": (
        "header", TEXT | {"pattern": rf'^({_KEY}|"{_KEY}")$', "maxLength": 257},
        "Of your own, new for each request, the same for its repetitions: they get the first answer again.",
        '"7b1c5d4e-0f62-4c0b-9a55-2f6f3c6a9d10"',
    ),
    "Cache-Control": ("header", TEXT, "no-cache: no older state than that of the call.", "no-cache"),
    "traceparent": ("header", TEXT, "The W3C trace that the change's events belong to.",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    "tracestate": ("header", TEXT, "What vendors add to that trace.", "vendor=1"),
    CORRELATION_HEADER: ("header", TEXT, "An id of your own, for answer, events and log.", "order-4711"),
}  # fmt: skip

ABOUT = (
    "Whatever takes GET takes HEAD too, and answers with the same status and headers. There is one version of the API: "
    "`api-version` in a query is refused. Answers may get new properties: ignore those that you do not know."
)
"""What holds for every call."""

OF_EVERY_ANSWER = (CORRELATION_HEADER, "Content-Encoding", "Vary")
"""The headers that an answer may have, whatever the call and the status."""

HEADERS = {
    CORRELATION_HEADER: "The caller's own, if it was well-formed; else a new one.",
    "ETag": "The version. It may be missing after a change that another writer has already replaced.",
    "Last-Modified": "When it was changed last, to the second; left out for three seconds.",
    "Written": "What was written: the parameter written of a search waits for it.",
    "Location": "The path of what was created.",
    "Idempotency-Replayed": '"true": the answer to an earlier request with this key.',
    "Cache-Control": "Who may keep the answer.",
    "Content-Encoding": "gzip: what was read is large, and Accept-Encoding takes it.",
    "Vary": "Accept-Encoding: it decides whether the answer comes as gzip.",
    "Retry-After": "In how many seconds to come back.",
    "Allow": "The methods that the path takes.",
    "Accept": "The media types that the call takes.",
    "Accept-Patch": "The media types that the PATCH takes (RFC 5789).",
    "Accept-Encoding": "The content coding that the call takes.",
}


def parameter(name: str, schema: Schema | None = None, place: str = "") -> dict[str, Any]:
    """A parameter by its name; ``schema`` of one that is the service's own.

    The example stands in the schema: beside it, a page to try the call would send it unless a person took it out.
    """
    known = _PARAMETERS.get(name, ("query", TEXT, f"{_words(name)}.", None))
    found_in, taken = place or known[0], schema or known[1]
    if name != "continuationToken":  # nobody makes one up
        example = known[3] if isinstance(known[3], str | int) else None
        taken = taken | {"examples": [Components().example(taken, name) if example is None else example]}
    told: dict[str, Any] = {"name": name, "in": found_in, "description": known[2], "schema": taken}
    return told | ({"required": True} if found_in == "path" else {})


def _words(name: str) -> str:
    return "".join(f" {each.lower()}" if each.isupper() else each for each in name).capitalize()
