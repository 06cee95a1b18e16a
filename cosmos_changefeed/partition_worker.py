"""Delivers one lease's feed; a batch's checkpoint is written after its handler has returned, and only by the owner.

An error, a cancellation, a lost lease or a crash before that leaves the checkpoint unchanged: the batch is delivered
again, by this instance or another. The next page is read and prepared while a batch is handled, and dropped if the
batch fails.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from cosmos_changefeed.clock import Clock
from cosmos_changefeed.errors import FeedRangeGone, LeaseLost, failure_of
from cosmos_changefeed.feed import FeedPage, FeedReader, SdkStart
from cosmos_changefeed.handling import ChangeFeedContext, OnError, TwoSteps, Work
from cosmos_changefeed.heartbeat import Heartbeat
from cosmos_changefeed.lease import EpkRange, Lease
from cosmos_changefeed.lease_store import LeaseStore
from cosmos_changefeed.options import ProcessorOptions

MAX_PAUSE_SECONDS = 30.0


@dataclass(frozen=True)
class _Batch:
    """A page and its prepared work; None: the page is empty."""

    page: FeedPage
    work: Work | None


@dataclass(frozen=True)
class Shared:
    """The objects that all workers of a processor share."""

    reader: FeedReader
    store: LeaseStore
    handler: TwoSteps[Any]
    options: ProcessorOptions
    start: SdkStart
    on_error: OnError
    clock: Clock


def pause_after(failures: int, poll_interval: float) -> float:
    """Returns the seconds to wait after so many failures in a row: twice the poll interval, then doubling up to 30."""
    # A handler may fail for days: the exponent must stay bounded.
    return min(poll_interval * 2.0 ** min(failures, 20), MAX_PAUSE_SECONDS)


class PartitionWorker:
    """Reads one lease's feed and calls the handler, batch by batch, until stopped or until the lease is lost."""

    def __init__(self, lease: Lease, feed_range: EpkRange, shared: Shared, *, asked: float) -> None:
        """``asked``: a monotonic time before the lease was acquired; other instances expire it no earlier than that."""
        self.lease = lease
        """The lease as last written."""
        self.position = lease.continuation
        """The LSN up to which the feed was read and handled; ahead of the checkpoint after empty pages."""
        self.heartbeat = Heartbeat(shared.clock)
        """Beats with each page, empty or not, handled or failed."""
        self._feed_range = feed_range
        self._shared = shared
        self._options = shared.options
        self._writing = asyncio.Lock()
        self._written_at = asked
        self._stopping = asyncio.Event()
        self._woken = asyncio.Event()
        """Set if a change may have been written since the last read began: the next read is not delayed."""
        self._handling = False
        self._processing: asyncio.Task[None] | None = None
        self._ahead: asyncio.Task[_Batch] | None = None
        """The next batch, read and prepared while this one is handled."""

    async def run(self) -> None:
        """Work until :meth:`stop`. Raises LeaseLost or FeedRangeGone; any other error goes to ``on_error``."""
        self._processing = asyncio.create_task(self._process(), name=f"feed of lease {self.lease.token}")
        renewing = asyncio.create_task(self._renew(), name=f"renewal of lease {self.lease.token}")
        tasks = (self._processing, renewing)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*(each for each in tasks if not each.done()), return_exceptions=True)
            errors = [each.exception() for each in tasks if not each.cancelled()]
        for error in filter(None, errors):
            raise error

    def stop(self, *, drain: bool) -> None:
        """Stop reading. With ``drain`` a running handler ends and is checkpointed; without, it is cancelled."""
        self._stopping.set()
        if self._processing is not None and not (drain and self._handling):
            self._processing.cancel()

    def wake(self) -> None:
        """Read now if the worker waits for changes; else once more after the current read.

        Any number of calls before that read count as one. A pause after a failure is not cut short.
        """
        self._woken.set()

    def holds(self, effective_key: str) -> bool:
        """Whether an effective partition key is in the worker's range."""
        return self._feed_range.holds(effective_key)

    async def _process(self) -> None:
        try:
            await self._process_pages()
        finally:
            await self._drop_ahead()

    async def _process_pages(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            try:
                had_items = await self._process_page(read_ahead=self._options.read_ahead and failures == 0)
            except (LeaseLost, FeedRangeGone):
                raise
            except (Exception, asyncio.CancelledError) as raised:  # noqa: BLE001 - whatever the handler or the SDK raises is reported and retried
                error = failure_of(raised)
                await self._drop_ahead()
                self.heartbeat.beat(failed=True)
                self._shared.on_error(self.lease.token, error)
                failures += 1
                await _set_within(self._stopping, pause_after(failures, self._options.poll_interval))
                continue
            failures = 0
            self.heartbeat.beat()
            if not had_items:
                await _set_within(self._woken, self._options.poll_interval)

    async def _process_page(self, *, read_ahead: bool) -> bool:
        batch = await self._next_batch()
        if batch.work is not None:
            if read_ahead:
                self._ahead = asyncio.create_task(self._read(batch.page.continuation))
            await self._deliver(batch.page, batch.work)
        self.position = batch.page.continuation
        return batch.work is not None

    async def _next_batch(self) -> _Batch:
        """Returns the batch that was read ahead, or a new read if that failed or was empty."""
        ahead = self._ahead
        if ahead is not None:
            await asyncio.wait([ahead])
            self._ahead = None  # not earlier: if the wait is cancelled, the task must still be dropped
            if ahead.exception() is None and ahead.result().work is not None:
                return ahead.result()
        return await self._read(self.position)

    async def _drop_ahead(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.cancel()
            await asyncio.wait([ahead])
            if not ahead.cancelled():
                ahead.exception()  # retrieved, so that asyncio does not log it as never retrieved

    async def _read(self, continuation: str | None) -> _Batch:
        self._woken.clear()  # before the read: it may miss a change that is written during it
        page = await self._shared.reader.read(
            self._feed_range,
            continuation=continuation,
            start=self._shared.start,
            max_items=self._options.max_items,
        )
        return _Batch(page, await self._shared.handler.begin(page.items) if page.items else None)

    async def _deliver(self, page: FeedPage, work: Work) -> None:
        context = ChangeFeedContext(
            self.lease.token, self._feed_range, page.continuation, page.session_token, page.request_charge
        )
        self._handling = True
        try:
            await work(context)
            await self._checkpoint(page.continuation)
        finally:
            self._handling = False

    async def _checkpoint(self, continuation: str) -> None:
        """Write the checkpoint, retrying until the lease is lost: delivering the batch again would not help."""
        failures = 0
        while True:
            try:
                await self._write(lambda lease: self._shared.store.checkpoint(lease, continuation))
            except LeaseLost:
                raise
            except Exception as error:  # noqa: BLE001 - any failure of the SDK is reported and retried
                self._shared.on_error(self.lease.token, error)
                failures += 1
                await asyncio.sleep(pause_after(failures, self._options.poll_interval))
            else:
                return

    async def _renew(self) -> None:
        interval = self._until_renewal()
        while True:
            await asyncio.sleep(interval)
            try:
                async with asyncio.timeout(self._remaining()):
                    await self._write(self._shared.store.renew)
            except LeaseLost:
                raise
            except (Exception, asyncio.CancelledError) as raised:  # noqa: BLE001 - any failure is reported, until the lease has expired
                error = failure_of(raised)
                self._shared.on_error(self.lease.token, error)
                if self._remaining() <= 0:
                    # Another instance may own the lease now, and two must not work on one lease.
                    raise LeaseLost(self.lease.token, "the lease could not be renewed in time") from error
                interval = min(self._options.renew_interval, max(self._remaining() / 4, 0.1))
            else:
                interval = self._until_renewal()

    def _until_renewal(self) -> float:
        """Returns the seconds to the next renewal, counted from the request, as the expiry is: answers may be late."""
        return self._remaining() - self._options.expiration_interval + self._options.renew_interval

    def _remaining(self) -> float:
        return self._written_at + self._options.expiration_interval - self._shared.clock.monotonic()

    async def _write(self, write: Callable[[Lease], Awaitable[Lease]]) -> None:
        async with self._writing:
            asked = self._shared.clock.monotonic()
            self.lease = await write(self.lease)
            self._written_at = asked


async def _set_within(event: asyncio.Event, seconds: float) -> None:
    """Wait until the event is set, for at most ``seconds``."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
