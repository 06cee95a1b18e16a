"""Runs a worker for each lease of this process, at most one for a lease, and releases the lease of each that ends.

One instance of :class:`ChangeFeedProcessor` runs in each process that shares the work; the instances communicate only
through the lease container. Changes of one lease are delivered in order, at least once.
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from azure.core.exceptions import AzureError
from azure.cosmos.aio import ContainerProxy

from cosmos_changefeed.balancing import leases_to_take
from cosmos_changefeed.clock import SYSTEM, Clock
from cosmos_changefeed.errors import ChangeFeedError, FeedRangeGone, LeaseLost, LeasesUnusable, failure_of
from cosmos_changefeed.feed import FeedReader, PartitionKeyValue, effective_key
from cosmos_changefeed.handling import Handler, OnError, TwoSteps, as_they_are
from cosmos_changefeed.heartbeat import Heartbeat
from cosmos_changefeed.lease import INCREMENTAL_FEED, EpkRange, Lease
from cosmos_changefeed.lease_repair import LeaseMender
from cosmos_changefeed.lease_store import LeaseStore
from cosmos_changefeed.options import ProcessorOptions
from cosmos_changefeed.partition_worker import PartitionWorker, Shared
from cosmos_changefeed.splitting import successors, without_parents

INITIALIZATION_POLL_SECONDS = 0.5
RELEASE_SECONDS = 2.0
"""The longest that a lease's release may take: enough for a container that is throttled for a second. A lease that is
not released expires, so a stop need not wait longer."""

_MANY = 2
"""The number of leases from which on the lease of a key is looked up: that costs less than reading all of them."""

_log = logging.getLogger(__name__)


def log_error(lease_token: str | None, error: Exception) -> None:
    """Log an error, as the default callback: the service's and this package's in a line, others with a traceback."""
    where = "processor" if lease_token is None else f"lease {lease_token}"
    expected = isinstance(error, AzureError | ChangeFeedError)
    _log.error("%s: %s", where, error, exc_info=None if expected else error)


class ChangeFeedProcessor:
    """Delivers the changes of a container to a handler, sharing the work with other instances.

    ``monitored`` is the container that is read; ``leases`` is a container with the partition key ``/id``. Instances
    with the same ``lease_prefix`` share the work; with different prefixes, each gets every change. ``instance_name``
    must be different in every running instance.

    The handler is called for one batch of a lease at a time, and a batch, or a part of it, may be delivered again. If
    the handler raises an error, the error goes to ``on_error`` and the batch is delivered again; the SDK's errors go
    there too. With :class:`TwoSteps`, a batch is prepared while the one before it is handled. The caller owns the
    containers' client and closes it after :meth:`stop`.
    """

    def __init__(  # noqa: PLR0913 - the parts of a processor; all but three are keywords
        self,
        monitored: ContainerProxy,
        leases: ContainerProxy,
        handler: Handler | TwoSteps[Any],
        *,
        instance_name: str,
        lease_prefix: str = "",
        options: ProcessorOptions | None = None,
        on_error: OnError = log_error,
        clock: Clock = SYSTEM,
    ) -> None:
        self._monitored = monitored
        self._lease_container = leases
        self._handler = handler if isinstance(handler, TwoSteps) else TwoSteps(as_they_are, handler)
        self._instance_name = instance_name
        self._lease_prefix = lease_prefix
        self._options = options or ProcessorOptions()
        self._report = on_error
        self._clock = clock
        self._workers: dict[str, PartitionWorker] = {}
        self._supervisors: set[asyncio.Task[None]] = set()
        self._waking: set[asyncio.Task[None]] = set()
        self._balancer: asyncio.Task[None] | None = None
        self._balancing = Heartbeat(clock)
        self._stopping = asyncio.Event()
        self._taking = asyncio.Lock()
        self._reader: FeedReader
        self._store: LeaseStore
        self._mender: LeaseMender | None = None
        self._shared: Shared

    @property
    def owned_leases(self) -> frozenset[str]:
        """The tokens of the leases that this instance works on."""
        return frozenset(self._workers)

    @property
    def heartbeats(self) -> Sequence[Heartbeat]:
        """The heartbeat of the loop that takes leases, and that of each lease that this instance works on."""
        return [self._balancing, *(worker.heartbeat for worker in self._workers.values())]

    @property
    def missing_ranges(self) -> Sequence[EpkRange]:
        """The ranges that had no lease at the last check; known only with ``mend_leases``."""
        return [] if self._mender is None else self._mender.missing

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop(drain=kind is None)

    async def start(self) -> None:
        """Create the missing leases and begin to work.

        Raises:
            AzureError: the containers cannot be read; ``start`` may be called again.
            LeasesUnusable: the lease container cannot be used as it is.
            RuntimeError: the processor was started before.
        """
        if self._balancer is not None:
            raise RuntimeError("a ChangeFeedProcessor is started once: make a new one")
        self._reader = await FeedReader.open(self._monitored)
        self._store = LeaseStore(
            self._lease_container,
            monitored=self._reader.identity,
            prefix=self._lease_prefix,
            clock=self._clock,
        )
        start = self._options.start.resolved(self._clock.now())
        self._shared = Shared(
            self._reader, self._store, self._handler, self._options, start, self._on_error, self._clock
        )
        if self._options.mend_leases:
            patience = self._options.expiration_interval
            self._mender = LeaseMender(self._reader, self._store, patience=patience, clock=self._clock)
        await self._store.check_partition_key()
        await self._create_leases_once()
        self._balancer = asyncio.create_task(self._balance(), name="change feed balancer")

    def wake(self, partition_key: PartitionKeyValue | None = None) -> None:
        """Read changes now instead of at the end of the poll interval; call it in the processor's loop.

        For a program that writes and reads in one process, and knows the partition key that it wrote. It costs a read
        of the one lease whose range has the key, if this instance works on it; without a key, a read of each lease of
        this instance. All calls during such a read cause one more read. A change that belongs to another instance, or
        that the replica does not have yet, waits for the next poll.
        """
        if partition_key is None or len(self._workers) < _MANY:
            self._wake_all()
        else:
            waking = asyncio.create_task(self._wake_one(partition_key), name="change feed wake")
            self._waking.add(waking)
            waking.add_done_callback(self._waking.discard)

    def _wake_all(self) -> None:
        for worker in self._workers.values():
            worker.wake()

    async def _wake_one(self, partition_key: PartitionKeyValue) -> None:
        try:
            key = await effective_key(self._monitored, partition_key)
        except Exception as error:  # noqa: BLE001 - one read too many does no harm, and one too few delays an event
            _log.debug("checking every lease, because the place of a partition key is unknown: %s", error)
            self._wake_all()
            return
        for worker in self._workers.values():
            if worker.holds(key):
                worker.wake()

    async def stop(self, *, drain: bool = True) -> None:
        """Stop working and release the leases.

        With ``drain`` a running handler ends and is checkpointed; without, the handler is cancelled and the batch is
        delivered again elsewhere. A second call without ``drain`` cuts a stop short.
        """
        self._stopping.set()
        for waking in self._waking:
            waking.cancel()
        if self._balancer is not None:
            # Wait a moment: a lease that is being acquired would otherwise stay owned until it expires.
            await asyncio.wait([self._balancer], timeout=RELEASE_SECONDS)
            self._balancer.cancel()
        for worker in list(self._workers.values()):
            worker.stop(drain=drain)
        if self._supervisors:
            await asyncio.wait(self._supervisors)

    def _on_error(self, lease_token: str | None, error: Exception) -> None:
        try:
            self._report(lease_token, error)
        except Exception:  # noqa: BLE001 - logged; the callback's failure must not end the processor
            _log.exception("the error callback failed")
            log_error(lease_token, error)

    async def _create_leases_once(self) -> None:
        while not await self._store.is_initialized():
            async with self._store.initialization_lock() as ours:
                if ours:
                    await self._create_leases()
                    await self._store.mark_initialized()
                    return
            await asyncio.sleep(INITIALIZATION_POLL_SECONDS)
        self._refuse_other_modes(await self._store.all())

    async def _create_leases(self) -> None:
        for partition in await self._reader.partitions():
            lease_id = self._store.lease_id(partition.id)
            await self._store.create(Lease(lease_id, partition.id, partition.feed_range))

    def _refuse_other_modes(self, leases: list[Lease]) -> None:
        for lease in leases:
            if lease.mode.lower() != INCREMENTAL_FEED.lower():
                raise LeasesUnusable(
                    f"lease {lease.id} is for the mode {lease.mode}; use another lease prefix"
                )

    async def _balance(self) -> None:
        while not self._stopping.is_set():
            try:
                await self._take_share()
            except (Exception, asyncio.CancelledError) as raised:  # noqa: BLE001 - any failure is reported; the next round tries again
                error = failure_of(raised)
                self._balancing.beat(failed=True)
                self._on_error(None, error)
            else:
                self._balancing.beat()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._options.acquire_interval):
                    await self._stopping.wait()

    async def _take_share(self) -> None:
        async with self._taking:
            stored = await self._store.all()
            leases = without_parents(stored)
            await self._delete_parents([each for each in stored if each not in leases])
            left_over = [each for each in leases if each.owner == self._instance_name]
            for lease in left_over + leases_to_take(
                leases,
                owner=self._instance_name,
                now=self._clock.now(),
                expiration_seconds=self._options.expiration_interval,
            ):
                await self._try_to_acquire(lease)
            if self._mender is not None:
                await self._mender.look(leases)

    async def _delete_parents(self, parents: Sequence[Lease]) -> None:
        """Delete parent leases that a split has left. A failure was reported when the split was followed."""
        for lease in parents:
            try:
                await self._store.delete(lease)
            except Exception as error:  # noqa: BLE001 - no worker uses the lease, so nothing depends on this
                _log.debug("lease %s: it was split, and could not be deleted: %s", lease.token, error)

    async def _try_to_acquire(self, lease: Lease) -> None:
        try:
            await self._acquire(lease)
        except Exception as error:  # noqa: BLE001 - reported; one lease must not keep the others from being taken
            self._on_error(lease.token, error)

    async def _acquire(self, lease: Lease) -> None:
        if self._stopping.is_set() or lease.token in self._workers:
            return
        feed_range = lease.feed_range or await self._range_of_old_lease(lease)
        asked = self._clock.monotonic()
        try:
            acquired = await self._store.acquire(replace(lease, feed_range=feed_range), self._instance_name)
        except LeaseLost as lost:
            _log.debug("%s", lost)
            return
        if self._stopping.is_set():
            await self._release(acquired)
            return
        worker = PartitionWorker(acquired, feed_range, self._shared, asked=asked)
        self._workers[lease.token] = worker
        supervisor = asyncio.create_task(self._supervise(worker), name=f"lease {lease.token}")
        self._supervisors.add(supervisor)
        supervisor.add_done_callback(self._supervisors.discard)

    async def _range_of_old_lease(self, lease: Lease) -> EpkRange:
        for partition in await self._reader.partitions():
            if partition.id == lease.token:
                return partition.feed_range
        raise LeasesUnusable(f"lease {lease.token} has no range, and its partition is gone")

    async def _supervise(self, worker: PartitionWorker) -> None:
        token = worker.lease.token
        _log.debug("lease %s: acquired", token)
        try:
            if await self._work(worker):
                await self._release(worker.lease)
        finally:
            del self._workers[token]  # only now: a lease that is being released must not be retaken

    async def _work(self, worker: PartitionWorker) -> bool:
        """Run the worker; whether there is a lease to release at the end."""
        try:
            await worker.run()
        except FeedRangeGone:
            return not await self._follow_split(worker)
        except LeaseLost as lost:
            _log.info("%s", lost)
            return False
        return True

    async def _follow_split(self, worker: PartitionWorker) -> bool:
        """Create the children's leases and delete the parent's; whether that succeeded, so that none is released."""
        deleted = False
        try:
            partitions = await self._reader.partitions()
            lease = worker.lease.at(worker.position)
            children = successors(lease, partitions, lease_id=self._store.lease_id)
            for child in children:
                await self._store.create(child)
            await self._store.delete(lease)
            deleted = True
            _log.info("lease %s: split into %s", lease.token, ", ".join(each.token for each in children))
            await self._take_share()
        except Exception as error:  # noqa: BLE001 - reported; a lease that is left is released, its next owner retries
            self._on_error(worker.lease.token, error)
        return deleted

    async def _release(self, lease: Lease) -> None:
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                await self._store.release(lease)
        except LeaseLost as lost:
            _log.debug("%s", lost)
        except Exception as error:  # noqa: BLE001 - reported; the lease expires
            self._on_error(lease.token, error)
