"""Creates missing leases again, reading from the beginning, so that no change is skipped.

Lease documents are lost if they are deleted, or if their container is restored from a backup. Processors create the
leases only once (the ``.info`` document records it), so no instance would work on that part again. The lost checkpoint
is not known, so the new lease has none: every change that is still stored is delivered again. A lease never starts from
"now": earlier changes would be lost.

A gap is filled only if each check has seen it for the time in which a lease expires, because a check is a query and no
snapshot: while a split writes the children's leases and deletes the parent's, one query may see neither. A wrongly
detected gap loses nothing: leases are only created, so an existing one keeps its checkpoint, and a superfluous one
delivers changes a second time.
"""

import asyncio
import logging
from collections.abc import Sequence

from azure.cosmos.aio import ContainerProxy

from cosmos_changefeed.clock import SYSTEM, Clock
from cosmos_changefeed.coverage import common, find_gaps, leases_for
from cosmos_changefeed.feed import FeedReader
from cosmos_changefeed.lease import EpkRange, Lease
from cosmos_changefeed.lease_store import LeaseStore

_log = logging.getLogger(__name__)


class LeaseMender:
    """Checks the leases repeatedly and fills gaps. Any number of menders may work on the same leases."""

    def __init__(
        self,
        reader: FeedReader,
        store: LeaseStore,
        *,
        patience: float,
        clock: Clock = SYSTEM,
    ) -> None:
        self._reader = reader
        self._store = store
        self._patience = patience
        self._clock = clock
        self._since: float  # when ``missing`` was first seen
        self.missing: list[EpkRange] = []
        """The ranges without a lease at each check so far."""

    async def look(self, leases: Sequence[Lease]) -> None:
        """Note the gaps between ``leases``; fill those that have existed for ``patience`` seconds.

        Raises the SDK's errors; a later call then fills the rest.
        """
        asked = self._clock.monotonic()
        found = await find_gaps(leases, self._reader)
        still = common(self.missing, found)
        if not still:
            self.missing, self._since = found, asked
            return
        self.missing = still
        if asked - self._since >= self._patience:
            await self._fill(still)
            self.missing = []

    async def _fill(self, missing: Sequence[EpkRange]) -> None:
        partitions = await self._reader.partitions()
        for lease in leases_for(missing, partitions, lease_id=self._store.lease_id):
            if await self._store.create(lease):
                _log.error(
                    "lease %s was missing, so nothing of its partition was delivered; it is made again and reads from "
                    "the beginning. Every change that is still stored is delivered again. Find out who deletes "
                    "documents of the lease container",
                    lease.token,
                )
            else:
                _log.warning(
                    "lease %s is no longer missing: another instance made it, or an attempt of this one whose answer "
                    "was lost, or the read was stale",
                    lease.token,
                )


async def mend_leases(
    monitored: ContainerProxy,
    leases: ContainerProxy,
    *,
    lease_prefix: str = "",
    patience: float,
    clock: Clock = SYSTEM,
) -> None:
    """Create missing leases, for a processor that does not do so itself; returns at once if none is missing.

    ``patience``: seconds between two checks; take the processor's ``expiration_interval``. The processor must start
    from the beginning. Raises the SDK's errors.
    """
    reader = await FeedReader.open(monitored)
    store = LeaseStore(leases, monitored=reader.identity, prefix=lease_prefix, clock=clock)
    mender = LeaseMender(reader, store, patience=patience, clock=clock)
    await mender.look(await store.all())
    if mender.missing:
        await asyncio.sleep(patience)
        await mender.look(await store.all())
