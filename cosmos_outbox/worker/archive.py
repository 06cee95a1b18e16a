"""The archive is written beside the relay, by a reader of its own: what holds up one does not hold up the other.

It has leases of its own, so several workers and function apps share it, and a page that could not be archived is read
again until it is.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from cosmos_outbox.cosmos.store import changefeed
from cosmos_outbox.cosmos.store.errors import SDK_ERRORS, classify
from cosmos_outbox.kernel.clock import machine, monotonic, new_id, utc_now
from cosmos_outbox.outbox.errors import OutboxError
from cosmos_outbox.outbox.once_a_minute import OnceAMinute
from cosmos_outbox.settings import relay_feed
from cosmos_outbox.wiring.archive import Archiving
from cosmos_outbox.wiring.outbox import Outbox
from cosmos_outbox.worker import vitals
from cosmos_outbox.worker.vitals import DRAIN_SECONDS

WATCH_SECONDS = 60.0
_PAUSE_SECONDS = 5.0

_log = logging.getLogger(__name__)


async def keep(outbox: Outbox, archiving: Archiving, stop: asyncio.Event) -> None:
    """Archive until told to stop, whatever fails meanwhile."""
    saying = OnceAMinute()

    def failed(_lease: str | None, error: BaseException) -> None:
        if saying.due():
            told = classify(error).error() if isinstance(error, SDK_ERRORS) else error
            _log.error("events are not archived, and are tried again: %s", told)

    processor = _processor(outbox, archiving, failed)
    while not stop.is_set():
        try:
            await processor.start()
        except (OutboxError, changefeed.ChangeFeedError, *SDK_ERRORS) as error:
            failed(None, error)
            await vitals.wait(stop, _PAUSE_SECONDS)
            continue
        break
    else:
        return
    try:
        while not await vitals.wait(stop, WATCH_SECONDS):
            try:
                await archiving.watch()
            except Exception as error:  # noqa: BLE001 - whatever it is, the archive goes on
                failed(None, error)
    finally:
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                await processor.stop()
        except TimeoutError:
            await processor.stop(drain=False)


def _processor(outbox: Outbox, archiving: Archiving, failed: Any) -> "changefeed.ChangeFeedProcessor":
    async def archive(changes: Sequence[Mapping[str, Any]], _: "changefeed.ChangeFeedContext") -> None:
        await archiving.keep(changes)

    return changefeed.ChangeFeedProcessor(
        outbox.feed,
        outbox.leases,
        archive,
        instance_name=f"{machine()}-{new_id().hex[:8]}",
        lease_prefix=archiving.lease_prefix,
        clock=changefeed.Clock(utc_now, monotonic),
        options=changefeed.ProcessorOptions(
            poll_interval=relay_feed.ARCHIVE_POLL_MS / 1000,
            max_items=outbox.reading.max_items,
            start=changefeed.StartFrom.beginning(),
            mend_leases=True,
        ),
        on_error=failed,
    )
