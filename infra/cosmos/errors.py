"""The one edge where the Cosmos SDK's errors become ours. Every kind has a meaning; an unknown one is "unavailable".

What matters about a failed write is whether it may have been stored. A refusal (409, 412, 413, 429 ...) says it was
not, by this attempt; an earlier attempt whose answer was lost may have been, and the SDK makes attempts of its own.
So a caller that sees CONFLICT, STALE or MISSING must look for its own write before it calls it somebody else's.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.cosmos.exceptions import CosmosBatchOperationError, CosmosHttpResponseError

from infra.errors import Misconfigured
from outbox.errors import OutboxError, Throttled, Unavailable

SDK_ERRORS = (AzureError, asyncio.TimeoutError, OSError)
"""What a call of the SDK can raise: its own errors, our deadline, and sockets that fail under its hands."""

_SESSION_NOT_AVAILABLE = 1002
_OWNER_NOT_FOUND = 1003


class Kind(Enum):
    """What a failure means for the caller."""

    MISSING = "the item does not exist"
    CONFLICT = "an item of that id exists"
    STALE = "the item is not at the version that was expected"
    TOO_LARGE = "the request is over 2 MB"
    INVALID = "the service does not take the request as it is"
    THROTTLED = "the container's throughput is used up"
    DENIED = "the key, token or role does not allow it"
    NO_CONTAINER = "the database or container does not exist"
    BEHIND = "no replica has caught up with the session token"
    PASSING = "no answer, or one that says nothing about the outcome"


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
"""https://learn.microsoft.com/rest/api/cosmos-db/http-status-codes-for-cosmosdb; what is not here passes:
408 and 5xx say nothing about the outcome, 410 moves a partition, 449 is a race inside the service."""


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

    def error(self) -> OutboxError | Misconfigured:
        """This failure as an error of ours, where the caller has no better word for it."""
        match self.kind:
            case Kind.THROTTLED:
                return Throttled(
                    "the store is at its throughput limit: try again later",
                    retry_after_seconds=self.retry_after_seconds,
                )
            case Kind.NO_CONTAINER:
                return Misconfigured(
                    f"the database or container in COSMOS_DATABASE, COSMOS_CONTAINER does not exist ({self.detail}): "
                    "the deployment makes them"
                )
            case Kind.INVALID | Kind.TOO_LARGE:
                return Misconfigured(
                    f"the store refuses what this service sends ({self.detail}): compare its set-up"
                )
            case Kind.DENIED:
                return Unavailable(
                    f"the store denies access ({self.detail}): the identity needs the role "
                    "Cosmos DB Built-in Data Contributor, a key must be the account's"
                )
            case _:
                return Unavailable(f"the store could not be used ({self.detail}): try again later")


def classify(error: BaseException) -> Failure:
    """What an error out of ``SDK_ERRORS`` means.

    A KeyError comes out of azure-cosmos 4.17 in place of 404/1002 where a token was given that the SDK never had.
    """
    detail = type(error).__name__
    if isinstance(error, CosmosHttpResponseError | CosmosBatchOperationError):
        status, sub_status = int(error.status_code or 0), int(error.sub_status or 0)
        headers: Mapping[str, str] = error.headers or {}
        return Failure(
            kind=_by_status(status, sub_status),
            detail=f"{detail} {status}/{sub_status}",
            retry_after_seconds=_milliseconds(headers.get("x-ms-retry-after-ms")) / 1000,
            session_token=headers.get("x-ms-session-token"),
            status=status,
        )
    if isinstance(error, KeyError):
        return Failure(Kind.BEHIND, detail)
    if isinstance(error, ClientAuthenticationError):
        return Failure(Kind.DENIED, detail)
    return Failure(Kind.PASSING, detail)


def _by_status(status: int, sub_status: int) -> Kind:
    if status == 404 and sub_status == _SESSION_NOT_AVAILABLE:
        return Kind.BEHIND
    if status == 404 and sub_status == _OWNER_NOT_FOUND:
        return Kind.NO_CONTAINER
    return _BY_STATUS.get(status, Kind.PASSING)


def _milliseconds(text: str | None) -> float:
    try:
        return float(text or 1000)
    except ValueError:
        return 1000.0
