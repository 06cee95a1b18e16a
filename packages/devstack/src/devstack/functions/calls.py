"""What the host and a worker process say to each other; all of it can be pickled.

A worker process says first whether it could load the app, and then what became of each call.
"""

from dataclasses import dataclass
from typing import Any

from devstack.functions.indexing import FunctionInfo
from devstack.functions.invocation import Input, RetryContext, RpcException, TraceContext


@dataclass(frozen=True)
class Loaded:
    """The app was imported."""

    functions: list[FunctionInfo]


@dataclass(frozen=True)
class NotLoaded:
    """The app cannot be run; the line says why."""

    reason: str


@dataclass(frozen=True)
class Call:
    number: int
    function: str
    value: Input
    trace_context: TraceContext
    retry_context: RetryContext


@dataclass(frozen=True)
class Outcome:
    """What became of a call: what the function returned, or what it raised."""

    number: int
    returned: Any = None
    raised: RpcException | None = None
