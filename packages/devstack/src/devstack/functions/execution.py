"""A failed execution is retried as its policy says, and only then given up: told, and left to the trigger."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from devstack.functions.indexing import FunctionInfo
from devstack.functions.invocation import Invoker, RetryContext, RpcException, TraceContext
from devstack.functions.listener import first_line
from devstack.functions.logs import logged_as

_logger = logging.getLogger(__name__)


class StoppedWaitingError(Exception):
    """The host stops, and the next attempt was not due yet: nothing was decided about the execution."""


class Executor:
    """Executes one function, with its retry policy if it has one."""

    def __init__(self, function: FunctionInfo, invoker: Invoker) -> None:
        self._function = function
        self._invoker = invoker
        self._stopping = asyncio.Event()

    def stop_retrying(self) -> None:
        """Let a running attempt end, and begin no other."""
        self._stopping.set()

    async def execute(self, make_argument: Callable[[], Any]) -> bool:
        """Run to success, or to the end of the retries; whether it succeeded. Raises StoppedWaitingError.

        Every attempt gets an argument of its own: what one has changed in it, the next does not see.
        """
        policy = self._function.retry
        trace = TraceContext.continued()
        pauses = policy.pauses() if policy else None
        retry, exception = 0, RpcException()
        while True:
            limit = policy.max_retry_count if policy else 0
            context = RetryContext(retry, limit, exception)
            try:
                await self._invoker.invoke(
                    self._function, make_argument(), trace_context=trace, retry_context=context
                )
            except Exception as error:  # noqa: BLE001 - whatever the function raises
                retry += 1
                before, exception = exception, RpcException.of(error)
                if policy is None or pauses is None or not policy.allows(retry):
                    what = "failed; no retry is left" if policy else "failed; it has no retry policy"
                    self._tell(what, error, before)
                    return False
                pause = next(pauses)
                self._tell(f"failed; retry {retry} follows in {pause:.1f} s", error, before)
                await self._wait(pause)
            else:
                return True

    def _tell(self, what: str, error: Exception, before: RpcException) -> None:
        # The same traceback at every retry would bury everything else.
        repeated = str(error) == before.message
        with logged_as(self._function.name):
            _logger.error("%s: %s", what, first_line(error), exc_info=None if repeated else error)

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return
        raise StoppedWaitingError
