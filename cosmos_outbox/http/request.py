"""Parses and validates the parts of a request: each function returns a valid value, or raises an error.

Conditions on a version are evaluated in the order of RFC 9110, 13.2.2. The ETag in a body is equivalent to
``If-Match``: with both, a version must be named by both. An ETag takes precedence over a date. Dates have a resolution
of seconds, and each instance has its own clock: so a version's date is returned only once no other change can have the
same date.

The sender is known only as far as the platform vouches for it, and only a digest of it is returned. App Service
authentication sets ``WEBSITE_AUTH_ENABLED`` to True in the app's environment
(https://github.com/AzureAD/microsoft-identity-web, AppServicesAuthenticationInformation.cs). Then no request from
outside can set the principal headers
(https://learn.microsoft.com/azure/app-service/configure-authentication-user-identities). If it is off, anybody can
send these headers, so they are ignored.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from uuid import UUID

from pydantic_core import from_json

from cosmos_outbox.http.message import READING, Request
from cosmos_outbox.http.problems import FieldError, InvalidRequest, RequestTooLarge, UnsupportedMediaType
from cosmos_outbox.kernel.clock import new_id, utc_now
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox.aggregate import (
    MODIFIED_AT,
    Aggregate,
    ETag,
    KeyedRequest,
    Origin,
    Versioned,
    digest,
)
from cosmos_outbox.outbox.canonical import canonical
from cosmos_outbox.settings.environment import Settings
from cosmos_outbox.telemetry import correlation
from cosmos_outbox.telemetry.tracing import Trace, nearest, valid_state

MAX_BODY_BYTES = 64 * 1024
CORRELATION_HEADER = "x-correlation-id"
DEFAULT_PAGE_SIZE = 50
MAX_PAGE_SIZE = 100
PAGE = ("pageSize", "continuationToken")
"""The query parameters of a call that returns a page of a list."""

_ONLY_OF_CHANGES = "Idempotency-Key"
_INSTEAD = {
    "If-Match": "it is for a change of one version of a resource",
    "If-None-Match": "it is for one resource, as it is now",
    "If-Unmodified-Since": "it is for a change of a resource that has a date: use If-Match with an ETag",
    _ONLY_OF_CHANGES: "it is for changes of resources, and does nothing here: leave it out",
}
HONOURED = tuple(_INSTEAD)
"""Headers that a call must either honour or refuse, since the sender relies on them."""

API_VERSION = "api-version"
"""A query parameter that is refused like a condition, unless the call honours it."""
_OF_THE_HOST = {"code": "code", "clientid": "clientId"}
"""Parameters of any query, in any case (here in lower case): a function key, and its name."""

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_QUOTED_KEY = re.compile(r'"(.*)"')
_KEY = re.compile(r"[\x21\x23-\x2b\x2d-\x5b\x5d-\x7e]{1,255}")
"""Excludes the comma: a header sent twice arrives as one, its values joined by a comma."""
_LONGEST_NAME = 40
_NUMBER = re.compile(r"[0-9]{1,9}")
_CORRELATION_ID = re.compile(r"[A-Za-z0-9._:|=-]{1,128}")
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
"""https://www.w3.org/TR/trace-context/#traceparent-header"""


def correlation_id(request: Request) -> str:
    """Returns the caller's correlation id if it is well-formed; otherwise a new one."""
    given = request.headers.get(CORRELATION_HEADER, "")
    return given if _CORRELATION_ID.fullmatch(given) else str(new_id())


def origin(request: Request, settings: Settings | None = None, *, who: str | None = None) -> Origin:
    """Returns the origin from the headers or the host's trace; a malformed header is ignored.

    ``settings``: of the service; without them the principal headers are ignored. ``who``: see :func:`principal`.
    """
    traceparent, given = request.headers.get("traceparent", ""), None
    if _TRACEPARENT.fullmatch(traceparent):
        given = Trace(traceparent, valid_state(request.headers.get("tracestate")))
    trace, cause = nearest(given), correlation.current() or correlation_id(request)
    believed = settings is not None and settings.platform_authenticates
    by = principal(request, platform_authenticates=believed, who=who)
    if trace is None:
        return Origin(cause, caused_by=by)
    return Origin(cause, trace.parent, trace.state, caused_by=by)


def path_id(request: Request) -> UUID | None:
    """Returns the id in the path; None if it is not a UUID."""
    text = request.route.get("id", "")
    return UUID(text) if _UUID.fullmatch(text) else None


def json_object(request: Request, *media_types: str) -> dict[str, Any]:
    """Parses the JSON object in the body, of one of these media types. Raises InvalidRequest."""
    media_type = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if media_type not in media_types:
        wanted = sorted(media_types)
        name = "Accept-Patch" if request.method == "PATCH" else "Accept"
        raise UnsupportedMediaType(
            FieldError("Content-Type", f"must be {' or '.join(wanted)}", "not_one_of"),
            accepted={name: ", ".join(wanted)},
        )
    if request.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
        raise UnsupportedMediaType(
            FieldError("Content-Encoding", "must be left out: send the body as it is", "not_one_of"),
            accepted={"Accept-Encoding": "identity"},
        )
    body = request.body
    if not body and "transfer-encoding" in request.headers:
        reason = "did not arrive: send Content-Length, since a chunked body is not passed on by the host"
        raise InvalidRequest(FieldError("body", reason, "required"))
    if len(body) > MAX_BODY_BYTES:
        raise RequestTooLarge(FieldError("body", f"must not be over {MAX_BODY_BYTES} bytes", "too_long"))
    try:
        data = from_json(body, allow_inf_nan=False)  # pydantic limits the nesting depth, json.loads does not
    except ValueError as error:
        raise InvalidRequest(FieldError("body", f"must be JSON in UTF-8: {error}", "malformed")) from None
    if not isinstance(data, dict):
        raise InvalidRequest(FieldError("body", "must be a JSON object", "wrong_type"))
    if repeated := _repeated_names(body):
        reason = "names {!r} twice: readers differ on which counts"
        raise InvalidRequest(*(FieldError("body", reason.format(name), "repeated") for name in repeated))
    return data


def _repeated_names(body: bytes) -> list[str]:
    """Returns the names that occur twice in one object of a valid body; pydantic's parser accepts them."""
    repeated: list[str] = []

    def note(pairs: list[tuple[str, Any]]) -> None:
        names = Counter(name for name, _ in pairs)
        repeated.extend(name[:_LONGEST_NAME] for name, count in names.items() if count > 1)

    json.loads(body, object_pairs_hook=note)
    return repeated


def refuse_unless(honoured: Collection[str], request: Request) -> None:
    """Raises InvalidRequest for a condition or a key that the call would ignore: its effect could not be undone.

    A key on a call that only reads is accepted: a read may be repeated anyway. ``api-version`` in the query is refused
    too, so that no caller assumes that this version responds (``docs/internals/decisions/0028``).
    """
    given = dict(parse_qsl(urlsplit(request.url).query, keep_blank_values=True))
    if API_VERSION in given and API_VERSION not in honoured:
        reason = "names a version, and the API has one: leave it out"
        raise InvalidRequest(FieldError(API_VERSION, reason, "not_honoured"))
    wrong = [
        FieldError(name, f"cannot be honoured by this call: {instead}", "not_honoured")
        for name, instead in _INSTEAD.items()
        if name in request.headers
        and name not in honoured
        and not (name == _ONLY_OF_CHANGES and request.method in READING)
    ]
    if wrong:
        raise InvalidRequest(*wrong)


def wants_newest(request: Request) -> bool:
    """Whether the caller requires a consistent read: ``Cache-Control: no-cache`` (RFC 9111, 5.2.1).

    Another team's subscriber heals from such a response: its state is no older than the call, and its 404 is proof.
    """
    directives = request.headers.get("Cache-Control", "").lower().split(",")
    return "no-cache" in (each.strip() for each in directives)


def idempotency_key(request: Request) -> str | None:
    """Returns the caller's ``Idempotency-Key``, in quotes as in the IETF draft or bare. Raises InvalidRequest.

    https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/
    """
    header = request.headers.get("Idempotency-Key")
    if header is None:
        return None
    quoted = _QUOTED_KEY.fullmatch(header.strip())
    key = quoted[1] if quoted else header.strip()
    if not _KEY.fullmatch(key):
        reason = "must be sent once, with 1 to 255 visible ASCII characters without quotes and commas, such as a UUID"
        raise InvalidRequest(FieldError("Idempotency-Key", reason, "malformed"))
    return key


def keyed(request: Request, settings: Settings, key: str, *, who: str | None = None) -> KeyedRequest:
    """Returns a creating request with its key. :func:`json_object` has accepted the body. Raises InvalidRequest.

    The fingerprint is a digest of the JSON value that was sent, in canonical form: it does not depend on white space,
    the order of names, the notation of numbers and characters, or fields that a later version adds.
    """
    return KeyedRequest(_sender(request, settings, who), key, _body_digest(request))


def keyed_change(  # noqa: PLR0913 - all of it identifies a request
    request: Request,
    settings: Settings,
    key: str,
    status_of: Callable[[Exception], int | None],
    *,
    action: str = "",
    has_body: bool = True,
    who: str | None = None,
) -> KeyedRequest:
    """As :func:`keyed`, for a change: its fingerprint includes method and action, but no conditions.

    The ``etag`` in the body of a PATCH or PUT is a condition and excluded; in an action's body the name has no special
    meaning. ``status_of``: returns the status of an aggregate's refusal, such as ``Answering.refusal_status``.
    """
    asked = _body_digest(request, without="" if action else ETAG) if has_body else ""
    sent = f"{request.method} {action} {asked}"
    return KeyedRequest(_sender(request, settings, who), key, digest(sent), status_of)


def _sender(request: Request, settings: Settings, who: str | None) -> str:
    return caller(request, platform_authenticates=settings.platform_authenticates, who=who)


def _body_digest(request: Request, *, without: str = "") -> str:
    sent = from_json(request.body)
    asked = {name: value for name, value in sent.items() if name != without} if without else sent
    try:
        return hashlib.sha256(canonical(asked)).hexdigest()
    except ValueError:
        reason = "has an integer beyond 2^53: write it as text"
        raise InvalidRequest(FieldError("body", reason, "too_large")) from None


def parameters(request: Request, *names: str) -> tuple[dict[str, str], list[FieldError]]:
    """Returns the values of the query parameters, and an error for each unknown or repeated name.

    They are read from the URL, since the Functions host drops empty ones. A misspelled name must not be ignored: with
    a misspelled ``continuationToken`` a caller would get the first page for ever.
    """
    pairs = parse_qsl(urlsplit(request.url).query, keep_blank_values=True)
    given = [(_OF_THE_HOST.get(name.lower(), name), value) for name, value in pairs]
    known = {*names, *_OF_THE_HOST.values()}
    times = Counter(name for name, _ in given)
    other = f"is not one of {', '.join(sorted(known))}"
    wrong = [FieldError(name, other, "unknown") for name in times if name not in known]
    wrong += [
        FieldError(name, "is given twice", "repeated") for name in times if name in known and times[name] > 1
    ]
    return dict(given), wrong


def query(request: Request, *names: str) -> dict[str, str]:
    """Returns the query parameters, which must all have these names. Raises InvalidRequest."""
    given, wrong = parameters(request, *names)
    if wrong:
        raise InvalidRequest(*wrong)
    return given


def page_request(request: Request, *also: str) -> tuple[int, str | None]:
    """Returns page size and continuation token; ``also``: the call's other query parameters. Raises InvalidRequest."""
    given = query(request, *PAGE, *also)
    size, token = page_size(given), given.get("continuationToken")
    if token == "":
        reason = "must not be empty: leave it out for the first page"
        raise InvalidRequest(FieldError("continuationToken", reason, "too_short"))
    return size, token


def page_size(given: Mapping[str, str]) -> int:
    """Returns the maximum number of items on a page. Raises InvalidRequest."""
    text = given.get("pageSize", str(DEFAULT_PAGE_SIZE))
    if not (_NUMBER.fullmatch(text) and 1 <= int(text) <= MAX_PAGE_SIZE):
        reason = f"must be a number from 1 to {MAX_PAGE_SIZE}"
        raise InvalidRequest(FieldError("pageSize", reason, "out_of_range"))
    return int(text)


ANONYMOUS = "anonymous"


def principal(request: Request, *, platform_authenticates: bool, who: str | None = None) -> str | None:
    """Returns a digest of the signed-in user; None: neither the platform nor the program knows one.

    ``platform_authenticates``: whether the platform, not the caller, sets the principal headers. ``who``: the user
    according to the program's own authentication.
    """
    if who is not None:
        return digest(f"program {who}")
    if platform_authenticates and (given := request.headers.get("x-ms-client-principal-id")):
        return digest(f"principal {request.headers.get('x-ms-client-principal-idp', '')} {given}")
    return None


def caller(request: Request, *, platform_authenticates: bool, who: str | None = None) -> str:
    """Returns the principal, else a digest of the function key, else ``ANONYMOUS``.

    As in the host, the header precedes the query, the first of two query parameters wins, and the parameter's name may
    be in any case (azure-functions-host, AuthenticationLevelHandler.cs).
    """
    if signed_in := principal(request, platform_authenticates=platform_authenticates, who=who):
        return signed_in
    if key := request.headers.get("x-functions-key") or _code(request):
        return digest(f"key {key}")
    return ANONYMOUS


def _code(request: Request) -> str | None:
    given = parse_qsl(urlsplit(request.url).query)
    return next((value for name, value in given if name.lower() == "code"), None)


ETAG = "etag"
"""The name of the version's property in bodies."""

_TAG = r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"'

_TAGS = re.compile(rf"[ \t,]*{_TAG}(?:[ \t]*,[ \t,]*{_TAG})*[ \t,]*")
"""Matches a list of entity tags; elements may be empty (RFC 9110, 5.6.1 and 8.8.3)."""

_DATE = re.compile(r"[A-Z][a-z]+, [^,]* GMT|[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}")
"""Matches one date in each of the three formats (RFC 9110, 5.6.7), but not two dates joined by a comma."""

_SETTLED = timedelta(seconds=3)
"""The age from which a date is returned: its second is over, even on clocks that differ by two seconds."""

_NO_VERSION = 'W/""'
"""A weak version, equal to no stored one: those are strong."""


def if_match(request: Request) -> frozenset[ETag]:
    """Returns the versions that the caller allows (empty: any existing one, as with ``*``). Raises InvalidRequest.

    A weak version is included but never matches: stored versions are strong, and RFC 9110, 13.1.1, requires the strong
    comparison.
    """
    header = request.headers.get("If-Match")
    if header is None or header.strip() == "*":
        return frozenset()
    return _tags(header, "If-Match")


def _tags(header: str, name: str) -> frozenset[ETag]:
    if not _TAGS.fullmatch(header):
        reason = "must be the unchanged ETag of an answer, in quotes; * stands for any version"
        raise InvalidRequest(FieldError(name, reason, "malformed"))
    return frozenset(re.findall(_TAG, header))


def _is_named(version: ETag, tags: frozenset[ETag]) -> bool:
    """Compares weakly."""
    return version.removeprefix("W/") in {tag.removeprefix("W/") for tag in tags}


@dataclass(frozen=True)
class OfChange:
    """The conditions of a change on the version that it changes."""

    if_match: frozenset[ETag]
    """The allowed versions; empty: any."""
    unmodified_since: datetime | None = None
    none_match: frozenset[ETag] | None = None
    """The versions that are not allowed; empty: none is allowed."""

    def refuses(self, found: Versioned[Any]) -> bool:
        """Whether a condition other than ``if_match`` refuses the version."""
        modified = last_modified(found.aggregate)
        if self.unmodified_since is not None and modified is not None and modified > self.unmodified_since:
            return True
        return self.none_match is not None and (not self.none_match or _is_named(found.etag, self.none_match))


def of_change(request: Request, body_etag: ETag | None = None) -> OfChange:
    """Returns the conditions of a change; ``body_etag``: the version in its body. Raises InvalidRequest.

    A date is ignored if there is a version (RFC 9110, 13.1.4). A malformed date is refused: a change that ignored its
    condition could not be undone.
    """
    versions, date = if_match(request), request.headers.get("If-Unmodified-Since")
    if body_etag is not None:
        versions = frozenset({body_etag} & versions if versions else {body_etag}) or frozenset({_NO_VERSION})
    since = None
    if date is not None and "If-Match" not in request.headers and body_etag is None:
        since = _date(date)
        if since is None:
            reason = "must be the unchanged Last-Modified of an answer"
            raise InvalidRequest(FieldError("If-Unmodified-Since", reason, "malformed"))
    header = request.headers.get("If-None-Match")
    if header is None:
        return OfChange(versions, since)
    none = frozenset() if header.strip() == "*" else _tags(header, "If-None-Match")
    return OfChange(versions, since, none)


def taken_from(body: Mapping[str, Any]) -> tuple[dict[str, Any], ETag | None]:
    """Splits the body into its other properties and its ``etag``. Raises InvalidRequest."""
    rest = {name: value for name, value in body.items() if name != ETAG}
    if len(rest) == len(body):
        return rest, None
    etag = body[ETAG]
    if not isinstance(etag, str) or not re.fullmatch(_TAG, etag):
        reason = "must be as an answer had it: read again, or leave it out"
        raise InvalidRequest(FieldError(ETAG, reason, "malformed"))
    return rest, etag


def is_known(request: Request, version: ETag, modified: datetime | None = None) -> bool:
    """Whether the caller already has this version, or any with ``*`` (``If-None-Match``; RFC 9110, 13.1.2).

    A malformed header names no version. Without the header, a valid ``If-Modified-Since`` decides.
    """
    header = request.headers.get("If-None-Match")
    if header is None:
        since = _date(request.headers.get("If-Modified-Since", ""))
        return modified is not None and since is not None and modified <= since
    if header.strip() == "*":
        return True
    return _is_named(version, frozenset(re.findall(_TAG, header)) if _TAGS.fullmatch(header) else frozenset())


def has_dates(kind: type[Aggregate[Any]]) -> bool:
    """Whether the state has the time of the last change. The time of creation is not enough."""
    return MODIFIED_AT in kind.state_type.model_fields


def last_modified(aggregate: Aggregate[Any]) -> datetime | None:
    """Returns the time of the last change (``modified_at``) or of creation, in seconds; None: it is not known."""
    state = aggregate.state
    if not has_dates(type(aggregate)):
        return None
    at = getattr(state, MODIFIED_AT) or getattr(state, "created_at", None)
    return at.astimezone(UTC).replace(microsecond=0) if isinstance(at, datetime) else None


def settled_modification(aggregate: Aggregate[Any]) -> datetime | None:
    """Returns the version's date for responses; None while the next version could have the same date."""
    at = last_modified(aggregate)
    return at if at is not None and utc_now() - at >= _SETTLED else None


def _date(text: str) -> datetime | None:
    if not _DATE.fullmatch(text.strip()):
        return None
    try:
        return parsedate_to_datetime(text).replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
