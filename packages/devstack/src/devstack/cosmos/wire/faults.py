"""Faults on demand: what a client must survive, made to happen a given number of times to the requests that match.

Two of them look the same to the client, a connection that ends without an answer, and differ in what they leave behind:
``fail-before-commit`` nothing, ``drop-after-commit`` everything.
"""

from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from devstack.cosmos.errors import (
    RETRY_WITH,
    SERVICE_UNAVAILABLE,
    TOO_MANY_REQUESTS,
    CosmosError,
)
from devstack.cosmos.wire.messages import Answer, Request

MAX_FAULTS = 100


class Fault(BaseModel):
    """``count`` requests that match meet it, then it is gone. What is not given matches everything.

    ``operation``: create, upsert, read, replace, patch, delete, batch, query, plan or feed. ``container``: its id.
    ``path``: a pattern of the decoded path, with ``*``.
    """

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, populate_by_name=True)

    kind: Literal["fail-before-commit", "drop-after-commit", "throttle", "retry-with", "unavailable", "slow"]
    count: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    method: str | None = None
    operation: str | None = None
    container: str | None = None
    path: str | None = None
    seconds: Annotated[float, Field(ge=0, le=600)] = 1.0
    """How slow."""
    retry_after_ms: Annotated[int, Field(ge=0, le=600_000)] = 100
    """What a throttled client is told to wait."""

    def meets(self, request: Request) -> bool:
        target = request.target
        checks = (
            self.method in (None, request.method),
            self.operation in (None, operation_of(request)),
            self.container in (None, target.container),
            self.path is None or fnmatchcase(request.path, self.path),
        )
        return all(checks)


class Faults:
    """The faults that are still to happen, the oldest first."""

    def __init__(self) -> None:
        self._pending: list[Fault] = []

    def add(self, fault: Fault) -> None:
        """Raises ValueError when there are too many."""
        if len(self._pending) >= MAX_FAULTS:
            raise ValueError(f"there are {MAX_FAULTS} faults already")
        self._pending.append(fault)

    def clear(self) -> None:
        self._pending.clear()

    def pending(self) -> list[Fault]:
        return list(self._pending)

    def take(self, request: Request) -> Fault | None:
        """The fault that this request meets; its count goes down."""
        for fault in self._pending:
            if fault.meets(request):
                fault.count -= 1
                if not fault.count:
                    self._pending.remove(fault)
                return fault
        return None


def instead(fault: Fault) -> Answer | None:
    """The answer without doing anything; None when the request is to be carried out. Raises the service's errors."""
    match fault.kind:
        case "throttle":
            headers = {"x-ms-retry-after-ms": str(fault.retry_after_ms)}
            raise CosmosError(TOO_MANY_REQUESTS, "The request rate is large (a fault on demand).", headers)
        case "retry-with":
            raise CosmosError(
                RETRY_WITH, "Conflicting request to resource has been attempted (a fault on demand)."
            )
        case "unavailable":
            raise CosmosError(SERVICE_UNAVAILABLE, "The service is unavailable (a fault on demand).")
        case "fail-before-commit":
            return Answer(503, dropped=True)
        case _:
            return None


def changed(fault: Fault, answer: Answer) -> Answer:
    """The answer of a request that was carried out."""
    if fault.kind == "drop-after-commit":
        answer.dropped = True
    if fault.kind == "slow":
        answer.delay = fault.seconds
    return answer


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
