"""What the host and a worker process say to each other; all of it can be pickled.

A worker process says first whether it could load the app, and then what became of each call. The host reads and writes
on its loop; a worker reads in a thread, which nothing that a function does to the loop holds up.
"""

import asyncio
import pickle
from dataclasses import dataclass
from typing import Any, BinaryIO

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


Message = Loaded | NotLoaded | Call | Outcome

_SIZE_BYTES = 8


def framed(message: Message) -> bytes:
    """The message as it goes over the socket, after its size."""
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return len(body).to_bytes(_SIZE_BYTES) + body


async def read(stream: asyncio.StreamReader) -> Any:
    """The next message. Raises EOFError or OSError: the other end is gone."""
    size = int.from_bytes(await stream.readexactly(_SIZE_BYTES))
    return pickle.loads(await stream.readexactly(size))  # noqa: S301 - of a process of our own


def read_in_thread(stream: BinaryIO) -> Any:
    """As :func:`read`, in a thread that waits. Raises EOFError or OSError."""
    size = int.from_bytes(stream.read(_SIZE_BYTES))
    if not size:
        raise EOFError
    return pickle.loads(stream.read(size))  # noqa: S301 - as above
