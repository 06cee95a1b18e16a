"""What a client of Cosmos DB must survive, made to happen to the requests that match."""

from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import Field

from devstack import fault_api
from devstack.cosmos.protocol.errors import (
    BAD_REQUEST,
    RETRY_WITH,
    SERVICE_UNAVAILABLE,
    TOO_MANY_REQUESTS,
    UNAUTHORIZED,
    WRITE_FORBIDDEN,
    CosmosError,
    session_not_available,
)
from devstack.cosmos.wire.messages import Answer, Lag, Request


class Fault(fault_api.Fault):
    """What is not given matches everything.

    ``operation``: create, upsert, read, replace, patch, delete, batch, query, plan or feed. ``container``: its id.
    ``path``: a pattern of the decoded path, with ``*``. ``lag`` meets reads of items only, counts all of them whatever
    its ``share``, and keeps no other fault away. ``slow``: the answer waits; ``late``: so does the request,
    which is carried out afterwards even if its client has given up. ``write-forbidden`` meets writes of items only.
    ``no-session-token``: the request is carried out, and if it is refused, the answer does not say of which state.
    """

    kind: Literal[
        "fail-before-commit",
        "drop-after-commit",
        "throttle",
        "slow",
        "late",
        "unauthorized",
        "retry-with",
        "unavailable",
        "refuse",
        "session-not-available",
        "write-forbidden",
        "no-session-token",
        "lag",
    ]
    method: str | None = None
    operation: str | None = None
    container: str | None = None
    path: str | None = None
    retry_after_ms: Annotated[int, Field(ge=0, le=600_000)] = 100
    """How long a throttled client is asked to wait."""
    versions: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """How many transactions a replica lags, instead of ``seconds``."""

    def meets(self, request: Request) -> bool:
        target = request.target
        checks = (
            self.kind not in _OF_READS or operation_of(request) in _READS,
            self.kind != "write-forbidden" or operation_of(request) in _WRITES,
            self.kind != "session-not-available" or "x-ms-session-token" in request.headers,
            self.method in (None, request.method),
            self.operation in (None, operation_of(request)),
            self.container in (None, target.container),
            self.path is None or fnmatchcase(request.path, self.path),
        )
        return all(checks)


Faults = fault_api.Faults[Fault]


def lagging(faults: Faults, request: Request) -> Request:
    """The request, as replicas will answer it."""
    fault = faults.take(lambda pending: pending.kind == "lag" and pending.meets(request))
    return request if fault is None else replace(request, lag=Lag(fault.seconds, fault.versions, fault.share))


def late(faults: Faults, request: Request) -> float:
    """How many seconds the request is on its way."""
    fault = faults.take(
        lambda pending: pending.kind == "late" and pending.meets(request) and faults.hits(pending)
    )
    return 0.0 if fault is None else fault.seconds


def met(faults: Faults, request: Request) -> Fault | None:
    """What happens to the request besides."""
    return faults.take(
        lambda pending: (
            pending.kind not in ("lag", "late") and pending.meets(request) and faults.hits(pending)
        )
    )


def instead(fault: Fault, request: Request) -> Answer | None:
    """The answer without doing anything; None when the request is to be carried out. Raises the service's errors."""
    match fault.kind:
        case "throttle":
            headers = {"x-ms-retry-after-ms": str(fault.retry_after_ms)}
            raise CosmosError(TOO_MANY_REQUESTS, "The request rate is large (a fault on demand).", headers)
        case "unauthorized":
            raise CosmosError(UNAUTHORIZED, "The authorization token is not valid (a fault on demand).")
        case "retry-with":
            raise CosmosError(
                RETRY_WITH, "Conflicting request to resource has been attempted (a fault on demand)."
            )
        case "unavailable":
            raise CosmosError(SERVICE_UNAVAILABLE, "The service is unavailable (a fault on demand).")
        case "refuse":
            raise CosmosError(BAD_REQUEST, "The request is refused (a fault on demand).")
        case "write-forbidden":
            raise CosmosError(
                WRITE_FORBIDDEN,
                "The requested operation cannot be performed at this region (a fault on demand).",
            )
        case "session-not-available":
            raise session_not_available(f"dbs/{request.target.database}/colls/{request.target.container}")
        case "fail-before-commit":
            return Answer(503, dropped=True)
        case _:
            return None


def changed(fault: Fault, answer: Answer) -> Answer:
    """The answer of a request that was carried out or refused."""
    match fault.kind:
        case "drop-after-commit":
            answer.dropped = True
        case "slow":
            answer.delay = fault.seconds
        case "no-session-token" if answer.is_refusal:
            answer.headers.pop("x-ms-session-token", None)
    return answer


_OF_READS = ("lag", "session-not-available")
_READS = ("read", "query", "feed")
_WRITES = ("create", "upsert", "replace", "patch", "delete", "batch")
_BY_METHOD = {"GET": "read", "PUT": "replace", "PATCH": "patch", "DELETE": "delete"}


def operation_of(request: Request) -> str:
    """What is done to items; empty for any other resource."""
    if request.target.type != "docs":
        return ""
    if request.method != "POST":
        return "feed" if "A-IM" in request.headers else _BY_METHOD.get(request.method, "")
    flags = {
        "x-ms-cosmos-is-query-plan-request": "plan",
        "x-ms-cosmos-is-batch-request": "batch",
        "x-ms-documentdb-isquery": "query",
        "x-ms-documentdb-is-upsert": "upsert",
    }
    return next((name for header, name in flags.items() if request.flag(header)), "create")
