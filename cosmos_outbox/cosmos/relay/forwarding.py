"""Forwards a page of the feed within a time limit, and stores why pages were not forwarded.

A slow page cannot block the feed's reader for ever.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import field
from datetime import datetime
from typing import Any

from cosmos_outbox.cosmos.aggregates.documents import EventReader
from cosmos_outbox.cosmos.relay.pages import ForwardResult, VerifiedPage
from cosmos_outbox.cosmos.relay.relay import Relay
from cosmos_outbox.cosmos.store.client import ContainerProxy
from cosmos_outbox.cosmos.store.errors import SDK_ERRORS, classify
from cosmos_outbox.kernel.clock import Clock, new_id, utc_now
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.kernel.loops import LogThrottle, own_failures, pace
from cosmos_outbox.outbox import telemetry
from cosmos_outbox.outbox.errors import FailureReason, NotDelivered, hindrance
from cosmos_outbox.outbox.feed import FeedEvent
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.telemetry.tracing import invoked

Setting = str | int | bool | None


@dataclass
class Instance:
    """This process."""

    settings: Mapping[str, Setting]
    """The relevant settings, without secrets: see :func:`cosmos_outbox.settings.environment.shown`."""
    id: str = field(default_factory=lambda: new_id().hex[:8])
    """A new id after each start."""
    started_at: datetime = field(default_factory=utc_now)
    forwarded: int = 0
    """The events that the broker has accepted from this process."""


WRITE_SECONDS = 4.0
"""The longest time of a write, so that a slow store does not delay the relay."""

_LONGEST_DETAIL = 400


@dataclass(frozen=True)
class RelayFailure:
    """A reason for which a page was not forwarded."""

    reason: FailureReason
    at: datetime
    """The time of the last report, by the relay's clock; a failure that lasts is reported once a minute."""
    detail: str


@dataclass(frozen=True)
class RelayFailures:
    """Stores why the relay failed last, beside the leases, one item a reason, so that any process can report it.

    Each item is a fact with its time, never a conclusion: a failure may be over. A process writes each reason once a
    minute at most, and a write that fails is left out: the log already has the failure.
    """

    leases: ContainerProxy
    name: str
    """The prefix of the ids. No id of a lease begins with it."""
    ttl_seconds: int
    """How long a reason is kept, if the container lets its items expire."""
    clock: Clock = utc_now
    _throttle: defaultdict[FailureReason, LogThrottle] = field(
        default_factory=lambda: defaultdict(LogThrottle), repr=False
    )

    async def note(self, reason: FailureReason, detail: str) -> None:
        """Records that a page was not forwarded. Raises no error of the store: the relay goes on."""
        if not self._throttle[reason].due():
            return
        item = {
            "id": f"{self.name}.{reason.value}",
            "reason": reason.value,
            "at": self.clock().isoformat(),
            "detail": detail[:_LONGEST_DETAIL],
            "ttl": self.ttl_seconds,
        }
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                await self.leases.upsert_item(item)
        except SDK_ERRORS as error:
            _log.debug("the reason of a failed page could not be stored: %s", classify(error).detail)

    async def since(self, time: datetime) -> Sequence[RelayFailure]:
        """Returns the failures since this time, the newest first. Costs a query. Raises the SDK's errors."""
        found = self.leases.query_items(
            "SELECT c.reason, c.at, c.detail FROM c WHERE STARTSWITH(c.id, @name)",
            parameters=[{"name": "@name", "value": f"{self.name}."}],
        )
        known = [
            RelayFailure(FailureReason(each["reason"]), datetime.fromisoformat(each["at"]), each["detail"])
            async for each in found
            if each["reason"] in set(FailureReason)
        ]
        return sorted((each for each in known if each.at >= time), key=lambda each: each.at, reverse=True)


FORWARD_SECONDS = 150.0
"""The limit for one page; shorter than ``functionTimeout`` in host.json, which ends the process and all in it."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Forwarding:
    """Reads the events among a feed's items, and passes them to the relay."""

    relay: Relay
    events: EventReader
    instance: Instance
    """Counts the events that the broker has accepted from this process."""
    failures: RelayFailures
    """Stores why a page was not forwarded."""

    async def forward(
        self, items: Iterable[Mapping[str, Any]], invocation: object | None = None
    ) -> ForwardResult:
        """Forwards the events among the items of a feed. Raises NotDelivered, Misconfigured."""
        with invoked(invocation):
            async with self._in_time("forwarded"):
                return self._counted(await self.relay.forward(await self._events(items)))

    async def compare(self, items: Iterable[Mapping[str, Any]]) -> VerifiedPage:
        """Runs the first half of :meth:`forward`, which sends nothing. Raises NotDelivered."""
        async with self._in_time("compared with what was committed"):
            return await self.relay.compare(await self._events(items))

    async def forward_committed(self, page: VerifiedPage) -> ForwardResult:
        """Runs the second half. Raises NotDelivered, Misconfigured."""
        async with self._in_time("forwarded"):
            return self._counted(await self.relay.forward_committed(page))

    async def _events(self, items: Iterable[Mapping[str, Any]]) -> list[FeedEvent]:
        return [event async for some in pace(items) for event in self.events.events(some)]

    @asynccontextmanager
    async def _in_time(self, done: str) -> AsyncIterator[None]:
        """Counts and stores each failure. Logs a timeout itself, since the relay, which logs all other waits, is
        cancelled then."""
        try:
            try:
                async with asyncio.timeout(FORWARD_SECONDS):
                    with own_failures():
                        yield
            except TimeoutError:
                reason = (
                    f"a page of the feed was not {done} within {FORWARD_SECONDS:.0f} s, and is tried again"
                )
                if self.relay.throttle.due():
                    _log.error("events wait: %s", reason)
                raise NotDelivered(reason, FailureReason.TOO_SLOW) from None
        except Exception as error:
            why = why_of(error)
            telemetry.round_failed(why)
            await self.failures.note(why, type(error).__name__ if why is FailureReason.BUG else str(error))
            raise

    def _counted(self, forwarded: ForwardResult) -> ForwardResult:
        self.instance.forwarded += forwarded.sent
        return forwarded


def why_of(error: BaseException) -> FailureReason:
    """Returns what an error means for a page of the feed."""
    if isinstance(error, Misconfigured):
        return FailureReason.MISCONFIGURED
    return why_of(classify(error).error()) if isinstance(error, SDK_ERRORS) else hindrance(error)
