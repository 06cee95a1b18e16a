"""A function runs as the Python worker runs it: a coroutine on the loop, a plain function in a thread.

The host and its worker processes say with these classes what to call and what came of it.
"""

import asyncio
import contextvars
import os
import secrets
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from traceback import format_exception
from typing import Any, Protocol

import azure.functions as func
from azure.functions import meta
from azure.functions.cosmosdb import CosmosDBTriggerConverter
from azure.functions.http import HttpRequestConverter, HttpResponseConverter
from azure.functions.queue import QueueMessageInConverter
from azure.functions.servicebus import ServiceBusMessageInConverter
from azure.functions.timer import TimerRequestConverter

from devstack.functions.indexing import CONTEXT, LoadedFunction
from devstack.functions.logs import logged_as
from devstack.service import CannotStart

CONVERTERS: Mapping[str, Any] = {
    "httpTrigger": HttpRequestConverter,
    "cosmosDBTrigger": CosmosDBTriggerConverter,
    "serviceBusTrigger": ServiceBusMessageInConverter,
    "queueTrigger": QueueMessageInConverter,
    "timerTrigger": TimerRequestConverter,
}
"""What makes of the host's data the value that a function gets, by the type of its trigger."""
THREAD_NAME = "function"
THREAD_COUNT_SETTING = "PYTHON_THREADPOOL_THREAD_COUNT"


@dataclass(frozen=True)
class RpcException:
    """What the attempt before raised, as ``context.retry_context.exception`` shows it."""

    source: str = ""
    stack_trace: str = ""
    message: str = ""

    @classmethod
    def of(cls, error: BaseException) -> "RpcException":
        return cls(type(error).__module__, "".join(format_exception(error)), str(error))


class FunctionFailed(Exception):
    """The function raised, or its worker process ended; the error itself stayed there."""

    def __init__(self, exception: RpcException) -> None:
        super().__init__(exception.message)
        self.exception = exception


@dataclass(frozen=True)
class Input:
    """A trigger's value as the host sends it to a worker process."""

    value: meta.Datum
    metadata: Mapping[str, meta.Datum] = field(default_factory=dict)


@dataclass(frozen=True)
class RetryContext:
    """0 and 0 where there is no policy."""

    retry_count: int = 0
    max_retry_count: int = 0
    exception: RpcException = field(default_factory=RpcException)


@dataclass(frozen=True)
class TraceContext:
    trace_parent: str
    trace_state: str = ""
    attributes: dict[str, str] = field(default_factory=dict)

    @classmethod
    def continued(cls, trace_parent: str | None = None, trace_state: str = "") -> "TraceContext":
        """A new span of the caller's W3C trace, or of a new one when the caller sent none that is valid."""
        parts = (trace_parent or "").split("-")
        valid = len(parts) == 4 and [len(part) for part in parts] == [2, 32, 16, 2]
        trace_id, flags = (parts[1], parts[3]) if valid else (secrets.token_hex(16), "01")
        return cls(f"00-{trace_id}-{secrets.token_hex(8)}-{flags}", trace_state)


class InvocationContext(func.Context):
    """What a function gets as ``context``."""

    def __init__(
        self, function_name: str, directory: str, trace_context: TraceContext, retry_context: RetryContext
    ) -> None:
        self._function_name = function_name
        self._directory = directory
        self._invocation_id = str(uuid.uuid4())
        self._thread_local_storage = threading.local()
        self._thread_local_storage.invocation_id = self._invocation_id
        self._trace_context = trace_context
        self._retry_context = retry_context

    @property
    def invocation_id(self) -> str:
        return self._invocation_id

    @property
    def thread_local_storage(self) -> Any:
        return self._thread_local_storage

    @property
    def function_name(self) -> str:
        return self._function_name

    @property
    def function_directory(self) -> str:
        return self._directory

    @property
    def trace_context(self) -> Any:
        return self._trace_context

    @property
    def retry_context(self) -> Any:
        return self._retry_context


def _thread_count() -> int | None:
    """The worker's setting; ``None`` is Python's default. Raises CannotStart for what is no count."""
    text = os.environ.get(THREAD_COUNT_SETTING)
    if not text:
        return None
    if not text.isdigit() or int(text) < 1:
        raise CannotStart(f"functions: {THREAD_COUNT_SETTING} is {text!r}; set it to a number from 1 up")
    return int(text)


class Invoker(Protocol):
    """Calls functions, wherever they run."""

    async def invoke(
        self, function: str, value: Input, *, trace_context: "TraceContext", retry_context: RetryContext
    ) -> Any:
        """Call the function of that name once; what it returns. Raises FunctionFailed."""


class LocalInvoker:
    """Calls the functions of this process; owns the threads of those that are not coroutines."""

    def __init__(self, directory: str, functions: Iterable[LoadedFunction]) -> None:
        self._directory = directory
        self._functions = {function.info.name: function for function in functions}
        self._threads = ThreadPoolExecutor(_thread_count(), THREAD_NAME)

    async def invoke(
        self, function: str, value: Input, *, trace_context: "TraceContext", retry_context: RetryContext
    ) -> Any:
        loaded = self._functions[function]
        with logged_as(function):
            try:
                return await self._call(loaded, value, trace_context, retry_context)
            except Exception as error:
                raise FunctionFailed(RpcException.of(error)) from error

    async def _call(
        self,
        function: LoadedFunction,
        value: Input,
        trace_context: "TraceContext",
        retry_context: RetryContext,
    ) -> Any:
        info = function.info
        converter = CONVERTERS[info.trigger_type]
        arguments = {info.trigger_argument: converter.decode(value.value, trigger_metadata=value.metadata)}
        if function.requires_context:
            arguments[CONTEXT] = InvocationContext(info.name, self._directory, trace_context, retry_context)
        if function.is_async:
            returned = await function.call(**arguments)
        else:
            returned = await self._in_thread(partial(function.call, **arguments))
        # Raises for anything but a text or an HttpResponse, None too, as the worker does.
        is_http = info.trigger_type == "httpTrigger"
        return HttpResponseConverter.encode(returned, expected_type=None) if is_http else None

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(self._threads, context.run, call)
