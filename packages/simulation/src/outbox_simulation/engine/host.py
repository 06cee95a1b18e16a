"""Runs the relay's functions as the Functions host does: their own code runs, under the retry policy they declare.

As the real host has it: a page is delivered with its texts that look like dates rewritten, again and again as long as
the retry policy allows, then it counts as done, whatever its outcome. A lease that is lost, or a stop without a drain,
ends the host's wait and not the call. A call that lasts for longer than ``functionTimeout`` ends the process.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any

from cosmos_changefeed import ChangeFeedContext, ChangeFeedProcessor, Clock, ProcessorOptions, StartFrom
from cosmos_outbox.kernel.clock import monotonic, new_id, utc_now
from cosmos_outbox.service import Service, Wired
from outbox_simulation.engine.trace import RunTrace

FUNCTION_TIMEOUT_SECONDS = 300.0
STOP_SECONDS = 10.0
"""The time that a process has to stop."""
_DRAINS = 0.5
_TIMERS = {"watch_relay": 300.0, "tend_parked": 60.0, "meet_deadlines": 10.0}
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 30.0

Call = Callable[..., Awaitable[None]]


class _Stopped(Exception):
    """The host stops without a decision: there is no checkpoint."""


@dataclass(frozen=True)
class _Trace:
    trace_parent: str | None = None
    trace_state: str | None = None


@dataclass(frozen=True)
class InvocationContext:
    """The attributes of the host's context that the function reads."""

    trace_context: _Trace = field(default_factory=_Trace)


@dataclass
class Host:
    """One process of a function app: what it does for any trigger."""

    wired: Wired
    stop: asyncio.Event
    chance: random.Random
    trace: RunTrace
    timed_out: Callable[[], None]
    """Ends the process."""
    _running: set[asyncio.Task[None]] = field(default_factory=set)

    async def invoke(self, function: Call, *arguments: object) -> BaseException | None:
        """Returns its error. It runs on after the host's wait has ended."""
        call = asyncio.ensure_future(function(*arguments))
        self._running.add(call)
        call.add_done_callback(self._running.discard)
        done, _ = await asyncio.wait({call}, timeout=FUNCTION_TIMEOUT_SECONDS)
        if not done:
            self.trace.note("functionTimeout")
            self.timed_out()
            await asyncio.get_running_loop().create_future()
        return call.exception()

    async def every(self, seconds: float, function: Call) -> None:
        """Runs a timer."""
        while True:
            await asyncio.sleep(seconds)
            await self.invoke(function, None)

    async def pause(self, seconds: float) -> None:
        """Waits, or until a stop is requested."""
        try:
            async with asyncio.timeout(seconds):
                await self.stop.wait()
        except TimeoutError:
            return


@dataclass
class RelayHost(Host):
    """A host that relays."""

    async def run(self) -> None:
        """Runs until a stop is requested."""
        functions = _functions(self.wired.service)
        relay = functions["relay"]
        async with self.wired.outbox.resources:
            processor = await self._start(relay)
            timers = [
                asyncio.create_task(self.every(seconds, functions[name].get_user_function()))
                for name, seconds in _TIMERS.items()
                if name in functions
            ]
            await self.stop.wait()
            for each in timers:
                each.cancel()
            await asyncio.wait(timers)
            if processor is not None:
                await self._stop(processor)

    async def _start(self, relay: Any) -> ChangeFeedProcessor | None:
        """Starts; None: a stop came before the store answered."""
        pause = _FIRST_PAUSE_SECONDS
        while not self.stop.is_set():
            processor = self._processor(relay)
            try:
                await processor.start()
            except Exception as error:  # noqa: BLE001 - the host retries for ever
                self.trace.note("host waits", detail=repr(error).splitlines()[0])
                await self.pause(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            else:
                return processor
        return None

    def _processor(self, relay: Any) -> ChangeFeedProcessor:
        outbox, trigger = self.wired.outbox, relay.get_trigger().get_dict_repr()

        async def handle(page: Sequence[Mapping[str, Any]], _context: ChangeFeedContext) -> None:
            await self._execute(relay, page)

        return ChangeFeedProcessor(
            outbox.feed,
            self.wired.relay.leases,
            handle,
            instance_name=str(new_id()),
            lease_prefix=outbox.settings.feed.lease_prefix,
            clock=Clock(utc_now, monotonic),
            options=ProcessorOptions(
                poll_interval=outbox.settings.feed.poll_delay_ms / 1000,
                max_items=outbox.settings.feed.max_items,
                start=StartFrom.beginning() if trigger["startFromBeginning"] else StartFrom.now(),
                acquire_interval=trigger["leaseAcquireInterval"] / 1000,
                renew_interval=trigger["leaseRenewInterval"] / 1000,
                expiration_interval=trigger["leaseExpirationInterval"] / 1000,
                read_ahead=False,
            ),
            on_error=lambda _lease, error: self.trace.note(
                "host reports", detail=repr(error).splitlines()[0]
            ),
        )

    async def _execute(self, relay: Any, page: Sequence[Mapping[str, Any]]) -> None:
        """Calls the function until it succeeds, or the retry policy ends. Raises _Stopped."""
        import azure.functions as func  # noqa: PLC0415 - of an extra

        from devstack.functions.retry import RetryPolicy  # noqa: PLC0415
        from devstack.functions.rewriting import rewritten  # noqa: PLC0415

        documents = func.DocumentList([func.Document.from_dict(rewritten(each, UTC)) for each in page])
        setting = relay.get_settings_dict("retry_policy")
        policy = RetryPolicy.from_decorator(setting) if setting else None
        pauses = policy.pauses(self.chance.uniform) if policy else iter(())
        retry = 0
        while (
            error := await self.invoke(relay.get_user_function(), documents, InvocationContext())
        ) is not None:
            retry += 1
            if policy is None or not policy.allows(retry):
                self.trace.note("host gives up", detail=f"{len(page)} document(s): {error!r}")
                return
            await self.pause(next(pauses))
            if self.stop.is_set():
                raise _Stopped

    async def _stop(self, processor: ChangeFeedProcessor) -> None:
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await processor.stop(drain=self.chance.random() < _DRAINS)
        except TimeoutError:
            await processor.stop(drain=False)


def _functions(service: Service) -> Mapping[str, Any]:
    """Returns the relay's functions, by their names."""
    import azure.functions as func  # noqa: PLC0415 - of an extra

    from cosmos_outbox.functions.relay import relay_functions  # noqa: PLC0415

    app = func.FunctionApp()
    app.register_functions(relay_functions(service))
    return {str(each.get_function_name()): each for each in app.get_functions()}
