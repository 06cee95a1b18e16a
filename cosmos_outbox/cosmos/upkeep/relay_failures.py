"""Stores why the relay failed last, beside the leases, one item a reason, so that any process can report it.

Each item is a fact with its time, never a conclusion: a failure may be over. A process writes each reason once a
minute at most, and a write that fails is left out: the log already has the failure.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from cosmos_outbox.cosmos.store.client import ContainerProxy
from cosmos_outbox.cosmos.store.errors import SDK_ERRORS, classify
from cosmos_outbox.kernel.clock import Clock, utc_now
from cosmos_outbox.kernel.loops import OnceAMinute
from cosmos_outbox.outbox.errors import Hindrance

WRITE_SECONDS = 4.0
"""The longest time of a write, so that a slow store does not delay the relay."""

_LONGEST_DETAIL = 400

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RelayFailure:
    """A reason for which a page was not forwarded."""

    reason: Hindrance
    at: datetime
    """The time of the last report, by the relay's clock; a failure that lasts is reported once a minute."""
    detail: str


@dataclass(frozen=True)
class RelayFailures:
    """The last failures of all processes of a relay, in the container of its leases."""

    leases: ContainerProxy
    name: str
    """The prefix of the ids. No id of a lease begins with it."""
    ttl_seconds: int
    """How long a reason is kept, if the container lets its items expire."""
    clock: Clock = utc_now
    _saying: defaultdict[Hindrance, OnceAMinute] = field(
        default_factory=lambda: defaultdict(OnceAMinute), repr=False
    )

    async def note(self, reason: Hindrance, detail: str) -> None:
        """Records that a page was not forwarded. Raises no error of the store: the relay goes on."""
        if not self._saying[reason].due():
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
            _log.debug("why the relay failed is not kept: %s", classify(error).detail)

    async def since(self, time: datetime) -> Sequence[RelayFailure]:
        """Returns the failures since this time, the newest first. Costs a query. Raises the SDK's errors."""
        found = self.leases.query_items(
            "SELECT c.reason, c.at, c.detail FROM c WHERE STARTSWITH(c.id, @name)",
            parameters=[{"name": "@name", "value": f"{self.name}."}],
        )
        known = [
            RelayFailure(Hindrance(each["reason"]), datetime.fromisoformat(each["at"]), each["detail"])
            async for each in found
            if each["reason"] in set(Hindrance)
        ]
        return sorted((each for each in known if each.at >= time), key=lambda each: each.at, reverse=True)
