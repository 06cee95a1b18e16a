"""Translates the Cosmos SDK's errors, in this module alone. Every kind has a meaning; an unknown one can pass.

A failed write may have been stored all the same. A refusal (409, 412, 413, 429 ...) says only that this attempt stored
nothing: an earlier attempt whose answer was lost may have stored the write, and the SDK makes attempts of its own. So a
caller that sees CONFLICT, STALE or MISSING must look for its own write before it blames another writer.
"""

import asyncio
import re
from collections.abc import Mapping
from enum import Enum
from urllib.parse import unquote, urlsplit

from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.cosmos.exceptions import CosmosBatchOperationError, CosmosHttpResponseError

from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox.errors import OutboxError, Throttled, Unavailable
from cosmos_outbox.settings.errors import Misconfigured

SDK_ERRORS = (AzureError, asyncio.TimeoutError, OSError)
"""The errors that a call of the SDK can raise: the SDK's own, the one of our deadline, and those of sockets."""

_SESSION_NOT_AVAILABLE = 1002
_OWNER_NOT_FOUND = 1003
_ASKED = re.compile(r"/dbs/([^/]+)/colls/([^/]+)/?(?P<item>.*)$")
"""The path of a request. Without what follows the container's name it is the container itself that is read."""

_FAILING_OVER = {3, 1008}
"""Of 403: this region takes no writes, or none at all, any more (the SDK's ``SubStatusCodes``); it asks another."""


class Kind(Enum):
    """The meaning of a failure for the caller."""

    MISSING = "the item does not exist"
    CONFLICT = "an item of that id exists"
    STALE = "the item is not at the version that was expected"
    TOO_LARGE = "the request is over 2 MB"
    INVALID = "the service does not take the request as it is"
    THROTTLED = "the container's throughput is used up"
    DENIED = "the key, token or role does not allow the request"
    NO_CONTAINER = "the database or container does not exist"
    BEHIND = "no replica has caught up with the session token"
    PASSING = "no answer, or an answer that leaves the outcome open"


_BY_STATUS = {
    400: Kind.INVALID,
    401: Kind.DENIED,
    403: Kind.DENIED,
    404: Kind.MISSING,
    409: Kind.CONFLICT,
    412: Kind.STALE,
    413: Kind.TOO_LARGE,
    429: Kind.THROTTLED,
}
"""https://learn.microsoft.com/rest/api/cosmos-db/http-status-codes-for-cosmosdb. Every other status is PASSING:
408 and 5xx leave the outcome open, 410 moves a partition, 449 is a race inside the service."""


@dataclass(frozen=True)
class Failure:
    """An SDK error, classified."""

    kind: Kind
    detail: str
    """Status and kind of error, for a log: no item, no key."""
    retry_after_seconds: float = 1.0
    session_token: str | None = None
    status: int = 0
    """The service's answer; 0: there was none."""
    answer_lost: bool = False
    """Of a write: an attempt may have been stored, although this is how the call ended."""
    container: str = ""
    """The container that was asked, in words, with its name."""
    index: int | None = None
    """Of a batch: which of its operations was refused; None: the answer does not say."""

    def passing(self) -> Throttled | Unavailable:
        """As :meth:`error`, for a caller that waits whatever the reason is, until an operator has removed it."""
        error = self.error()
        return error if isinstance(error, Throttled | Unavailable) else Unavailable(str(error))

    def error(self) -> OutboxError | Misconfigured:
        """This failure as an error of ours, for a caller that has no better error for it."""
        match self.kind:
            case Kind.THROTTLED:
                return Throttled(
                    "the store is at its throughput limit: try again later",
                    retry_after_seconds=self.retry_after_seconds,
                )
            case Kind.NO_CONTAINER:
                return Misconfigured(
                    f"{self.container or 'a container, or the database,'} does not exist ({self.detail}): create it as "
                    "the deployment does, or correct the setting that names it; python -m cosmos_outbox preflight "
                    "looks at all"
                )
            case Kind.INVALID | Kind.TOO_LARGE:
                return Misconfigured(
                    f"the store refuses a request of this service ({self.detail}): run cosmos-outbox preflight"
                )
            case Kind.DENIED:
                return Unavailable(
                    f"the store denies access ({self.detail}): give the identity the role "
                    "Cosmos DB Built-in Data Contributor, or put the account's key in COSMOS; let the account's "
                    "firewall pass this app; 403/1014 means that a logical partition has its 20 GB: make room in it"
                )
            case _:
                return Unavailable(f"the store could not be used ({self.detail}): try again later")


def classify(error: BaseException) -> Failure:
    """Returns the meaning of an error out of ``SDK_ERRORS``."""
    detail = type(error).__name__
    if isinstance(error, CosmosHttpResponseError | CosmosBatchOperationError):
        status, sub_status = int(error.status_code or 0), int(error.sub_status or 0)
        headers: Mapping[str, str] = error.headers or {}
        asked = _ASKED.search(_path(error))
        kind = _by_status(status, sub_status)
        return Failure(
            kind=Kind.NO_CONTAINER if kind is Kind.MISSING and asked and not asked["item"] else kind,
            detail=f"{detail} {status}/{sub_status}",
            retry_after_seconds=_milliseconds(headers.get("x-ms-retry-after-ms")) / 1000,
            session_token=headers.get("x-ms-session-token"),
            status=status,
            container=f"container {unquote(asked[2])} of database {unquote(asked[1])}" if asked else "",
            index=getattr(error, "error_index", None),
        )
    if isinstance(error, ClientAuthenticationError):
        return Failure(Kind.DENIED, detail)
    return Failure(Kind.PASSING, detail)


def _path(error: CosmosHttpResponseError | CosmosBatchOperationError) -> str:
    """Of the request that was refused; empty where the SDK does not keep it, as of a batch."""
    request = getattr(getattr(error, "response", None), "request", None)
    return urlsplit(str(getattr(request, "url", ""))).path


def _by_status(status: int, sub_status: int) -> Kind:
    if status == 404 and sub_status == _SESSION_NOT_AVAILABLE:
        return Kind.BEHIND
    if status == 404 and sub_status == _OWNER_NOT_FOUND:
        return Kind.NO_CONTAINER
    if status == 403 and sub_status in _FAILING_OVER:
        return Kind.PASSING
    return _BY_STATUS.get(status, Kind.PASSING)


def _milliseconds(text: str | None) -> float:
    try:
        return float(text or 1000)
    except ValueError:
        return 1000.0
