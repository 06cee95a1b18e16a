"""A failed execution is retried as its policy says, and only then given up: logged, and left to the trigger."""

import asyncio
import logging
from typing import Any

from devstack.functions.indexing import FunctionInfo
from devstack.functions.invocation import (
    FunctionFailed,
    Input,
    Invoker,
    RetryContext,
    RpcException,
    TraceContext,
)
from devstack.functions.listener import first_line
from devstack.functions.logs import logged_as

_log = logging.getLogger(__name__)


class StoppedWaiting(Exception):
    """The host stops, and nothing was decided: the next attempt was not due yet, or what was done does not count."""


class Executor:
    """Executes one function, with its retry policy if it has one."""

    def __init__(self, function: FunctionInfo, invoker: Invoker) -> None:
        self._function = function
        self._invoker = invoker
        self._stopping = asyncio.Event()
        self._logged: str | None = None

    def stop_retrying(self) -> None:
        """Let a running attempt end, and begin no other."""
        self._stopping.set()

    async def execute(self, value: Input) -> bool:
        """Run to success, or to the end of the retries, which is logged; whether it succeeded.

        Raises StoppedWaiting.
        """
        try:
            await self.run(value)
        except FunctionFailed as error:
            self._log_failure(
                "failed; no retry is left" if self._function.retry else "failed; it has no retry policy",
                error,
            )
            return False
        return True

    async def run(self, value: Input, trace: TraceContext | None = None) -> Any:
        """What the function returns. Raises the FunctionFailed of its last attempt, and StoppedWaiting."""
        policy = self._function.retry
        self._logged = None
        trace = trace or TraceContext.continued()
        pauses = policy.pauses() if policy else iter(())
        retry, exception = 0, RpcException()
        while True:
            context = RetryContext(retry, policy.max_retry_count if policy else 0, exception)
            try:
                return await self._invoker.invoke(
                    self._function.name, value, trace_context=trace, retry_context=context
                )
            except FunctionFailed as error:
                retry += 1
                if policy is None or not policy.allows(retry):
                    raise
                pause = next(pauses)
                self._log_failure(f"failed; retry {retry} follows in {pause:.1f} s", error)
                exception = error.exception
                await self._wait(pause)

    def _log_failure(self, what: str, error: FunctionFailed) -> None:
        # The same traceback at every retry would bury everything else.
        repeated, self._logged = str(error) == self._logged, str(error)
        with logged_as(self._function.name):
            _log.error("%s: %s%s", what, first_line(error), "" if repeated else stack_trace(error))

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return
        raise StoppedWaiting


def stack_trace(error: FunctionFailed) -> str:
    """Where in the app it failed, on lines of its own, to follow a line of the log."""
    return f"\n{error.exception.stack_trace.rstrip()}" if error.exception.stack_trace else ""
