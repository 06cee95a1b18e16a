"""Evaluates the conditions of a request on a resource's version, in the order of RFC 9110, 13.2.2.

The ETag in a body is equivalent to ``If-Match``: with both, a version must be named by both. An ETag takes precedence
over a date. Dates have a resolution of seconds, and each instance has its own clock: so a version's date is returned
only once no other change can have the same date.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from cosmos_outbox.http.message import Request
from cosmos_outbox.http.problems import FieldError, InvalidRequest
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox.aggregate import MODIFIED_AT, Aggregate, ETag, Versioned

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
