"""Runs the operations that follow a quiet deployment; each must leave it quiet again, and is judged by its promise.

The keys of clients are asked for again, everything is published again, the deployment stands still until all expires
that can, and its store is restored to an earlier moment, followed by the operator's work.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from cosmos_outbox.cli.publish_again import CLOCKS_DIFFER_SECONDS, RepublishingPlan, republish
from cosmos_outbox.cosmos.maintenance.event_list import Span
from cosmos_outbox.operations.republish import RepublishingProgress
from cosmos_outbox.preflight.plan import Needed, needed
from cosmos_outbox.service import Wired
from outbox_simulation.engine.backup import Backup
from outbox_simulation.engine.deployment import Deployment
from outbox_simulation.engine.expiry import expire
from outbox_simulation.engine.final_checks import messages_wait
from outbox_simulation.engine.operator import PASSING
from outbox_simulation.engine.plan import AFTERWARDS, SimulationPlan
from outbox_simulation.engine.process_faults import Strikes
from outbox_simulation.engine.processes import EPOCH, SimulatedProcess
from outbox_simulation.engine.system_under_test import SimulatedClient, SimulatedService, Subject
from outbox_simulation.engine.walking import walk_all
from outbox_simulation.engine.watching import Watcher
from outbox_simulation.engine.webhook_double import LATEST_SECONDS, NotRead, Posts
from outbox_simulation.invariants.committed import excused
from outbox_simulation.invariants.language import SKIP_MARKER
from outbox_simulation.invariants.violation import Violation

_PATIENCE_SECONDS = 600.0
"""A host recreates a lost lease at its timer's next check, in five minutes."""
_LONGEST_PAUSE_SECONDS = 15.0
"""The longest pause between two checks of an operation that takes long."""
_WORK_SECONDS = 10.0
_ALL_EXPIRES_SECONDS = 200 * 86_400.0
"""Longer than anything lives that expires."""
_ASKED_AGAIN = 5
_ANOTHER_STORE = 0.7
"""The share of restores in which the read models are in another store, and are not restored."""

Drain = Callable[[], Awaitable[list[Violation]]]
Document = Mapping[str, Any]


class Afterwards:
    """The operations of one run."""

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        plan: SimulationPlan,
        of: Subject,
        deployment: Deployment,
        *,
        strikes: Strikes,
        watcher: Watcher,
        clients: Sequence[SimulatedClient],
        drain: Drain,
    ) -> None:
        """``drain``: waits until all is well, and returns what is not."""
        self._plan, self._of, self._deployment, self._ground = plan, of, deployment, deployment.ground
        self._strikes, self._watcher, self._clients, self._drain = strikes, watcher, clients, drain
        self._chance = plan.chance("afterwards")
        self._judged = isinstance(of, SimulatedService)
        """Whether later events are judged; else only the feed may come again."""
        self._kinds: Mapping[str, Callable[[], Awaitable[list[Violation]]]] = dict(
            zip(
                AFTERWARDS,
                [
                    self._ask_again,
                    self._lose_lease,
                    self._publish_again,
                    self._restore,
                    self._stand_still,
                    self._go_away,
                ],
                strict=True,
            )
        )

    async def go_on(self) -> list[Violation]:
        """Runs the plan's operations and returns the violations."""
        for kind, do in self._kinds.items():
            if kind not in self._plan.faults or (kind != "lost lease" and not self._judged):
                continue
            self._ground.trace.note("afterwards", detail=kind)
            if found := [*await do(), *await self._drain()]:
                return found
        return []

    # -- operations

    async def _ask_again(self) -> list[Violation]:
        """Checks that each request with a key gets its first answer, as long as its claim lives."""
        found = []
        for client in self._clients:
            for wish in client.kept:
                for _ in range(_ASKED_AGAIN):
                    answer = await client.ask(wish)
                    if answer.outcome != "unknown" and answer.status != 429:
                        break
                else:
                    found.append(
                        Violation("first answer", f"{wish.name} got {answer.status}, and no fault is left")
                    )
        return found

    async def _lose_lease(self) -> list[Violation]:
        """Deletes a lease, so that a part of the feed comes again from its beginning."""
        await self._strikes.lose_lease(self._chance)
        await self._patiently(self._nothing_waits)
        return []

    async def _publish_again(self) -> list[Violation]:
        """Publishes every committed event again, except those that were discarded."""
        await self._patiently(
            self._nothing_waits
        )  # a lease lost at the last moment sends everything again, too
        loop, bus, desk = self._ground.loop, self._ground.bus, self._deployment.desks[0]
        self._watcher.received(bus.taken)
        first, until = len(bus.taken), loop.time() + _PATIENCE_SECONDS
        to = int(EPOCH.timestamp() + loop.time()) - CLOCKS_DIFFER_SECONDS
        plan = RepublishingPlan(Span(int(EPOCH.timestamp()), to), UUID(int=self._plan.seed, version=4))
        while True:
            progress = RepublishingProgress()
            try:
                await loop.begin(desk.instance, republish(desk.wired, plan, progress))
                break
            except PASSING as error:
                if loop.time() > until:
                    return [Violation("published again", f"the run never ends: {error!r}")]
                await asyncio.sleep(1.0)
        came = [each.sent for each in bus.taken[first:]]
        self._watcher.passed(bus.taken)
        skipped = {key.id for key in progress.skipped}
        return [*self._missed(came, skipped)]

    def _missed(self, came: Sequence[Any], skipped: set[str]) -> list[Violation]:
        history = self._ground.history
        given_up = excused(history) | history.discarded.keys()
        found = []
        for aggregate in sorted({each.aggregate for each in history.stored.values()} - skipped):
            stored = {each.event: each for each in history.stored.values() if each.aggregate == aggregate}
            wanted = [
                each.body for each in sorted(stored.values(), key=lambda each: each.sequence)
                if each.event not in given_up
            ]  # fmt: skip
            got = [
                each.message.data for each in came
                if each.aggregate == aggregate
                and each.message.data.get("action") != SKIP_MARKER
                and each.message.data.get("id") in stored.keys() - given_up
            ]  # fmt: skip
            if got != wanted:
                came_as, stored_as = ([each.get("sequence") for each in bodies] for bodies in (got, wanted))
                found.append(Violation("published again", f"{aggregate}: {came_as}, not {stored_as}"))
        return found

    async def _stand_still(self) -> list[Violation]:
        """Runs nothing until all expires that can; what is left then is there for good."""
        self._stop(self._all)
        await asyncio.sleep(_ALL_EXPIRES_SECONDS)
        self._ground.store.account.purge()
        left = [
            Violation("grows for ever", f"{each.get('type')} {each['id']} in {need.name}")
            for need in self._needed()
            for each in await self._documents(need.name)
            if not self._lives(each)
        ]
        for each in self._all:
            each.begin()
        await self._work()
        return left

    async def _go_away(self) -> list[Violation]:
        """Runs no relay for longer than an event lives, or nearly."""
        await self._patiently(self._nothing_waits)  # without a lease every event is at risk
        return await expire(self._deployment, self._watcher, self._chance, self._work)

    def _lives(self, item: Document) -> bool:
        """Whether it is an aggregate or entry that is not deleted, a note, a walk's progress or a key, or by others."""
        service, history, data = self._of.service, self._ground.history, item.get("data")
        kinds = {"entry", *(each.aggregate_type for each in service.aggregates)}
        by_others = {*history.unsequenced, *(each.document for each in history.poisons)}
        if item.get("type") in kinds:
            return isinstance(data, dict) and not data.get("deleted")
        return item.get("type") in {"note", "progress", "continuationKey"} or item["id"] in by_others

    async def _restore(self) -> list[Violation]:
        """Restores the store to an earlier moment, while subscribers have seen more: docs/operate/restore.md."""
        settings, bus, history = self._deployment.settings, self._ground.bus, self._ground.history
        takes_later = history.discarded if isinstance(bus, Posts) else {}  # what it refused once
        if history.poisons or history.unsequenced or takes_later:
            return []  # discarded events are forgotten with the marks of parked ones
        backup = Backup(history, self._watcher)
        lost = {settings.cosmos_lease_container, settings.cosmos_parked_container}
        kept = {*self._of.read_models} if self._chance.random() < _ANOTHER_STORE else set()
        documents = {
            need.name: [] if need.name in lost else await self._feed(need.name)
            for need in needed(settings, self._of.service)
            if need.name not in kept
        }
        await self._work()
        deployment = self._deployment
        self._stop([*deployment.apis, *deployment.relays])
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while messages_wait(self._ground):  # noqa: ASYNC110 - time is virtual
                await asyncio.sleep(1.0)
        if isinstance(bus, Posts):
            await asyncio.sleep(LATEST_SECONDS)
        self._stop(self._all)
        backup.put_back(bus.taken)
        await deployment.make_containers(documents)
        for each in [*deployment.desks, *deployment.apis]:
            each.begin()
        living = {each["id"] for each in documents[settings.cosmos_container] if self._lives(each)}
        for client in self._clients:
            client.kept.clear()
            client.etags.clear()
            client.etags.update(dict.fromkeys(sorted(living)))
        await self._patiently(self._rebuild)
        for each in deployment.relays:
            each.begin()
        await self._patiently(self._nothing_waits)
        deployment.replace_dead()
        await self._work()
        return []

    async def _rebuild(self, wired: Wired) -> bool:
        if isinstance(self._ground.bus, Posts):
            try:
                await self._ground.bus.begin_anew()
            except NotRead:
                return False
        return await walk_all(wired.subscriptions, source_wins=True)

    async def _nothing_waits(self, wired: Wired) -> bool:
        status = await wired.operator.observer.status()
        return bool(status.leases) and not (
            status.missing or any(each.oldest_waiting_seconds is not None for each in status.leases)
        )

    async def _patiently(self, step: Callable[[Wired], Coroutine[Any, Any, bool]]) -> None:
        """Repeats an operator's step until it is done, ever less often. Raises TimeoutError: it never is."""
        desk, pause = self._deployment.desks[0], 1.0
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while True:
                with suppress(*PASSING):
                    if await self._ground.loop.begin(desk.instance, step(desk.wired)):
                        return
                await asyncio.sleep(pause)
                pause = min(1.5 * pause, _LONGEST_PAUSE_SECONDS)

    # -- helpers

    @property
    def _all(self) -> list[SimulatedProcess]:
        return [*self._deployment.processes, *self._deployment.desks]

    def _needed(self) -> Iterator[Needed]:
        """Yields the containers of what may expire."""
        settings = self._deployment.settings
        for each in needed(settings, self._of.service):
            if each.name != settings.cosmos_lease_container:
                yield each

    def _stop(self, processes: Sequence[SimulatedProcess]) -> None:
        for each in processes:
            if each.instance.alive:
                each.crash()

    async def _work(self) -> None:
        """Lets clients go on for a while."""
        until = self._ground.loop.time() + _WORK_SECONDS

        async def act(client: SimulatedClient) -> None:
            while self._ground.loop.time() < until:
                await self._of.act(client)
                await asyncio.sleep(client.chance.uniform(0.0, 2.0))

        await asyncio.gather(*(act(each) for each in self._clients))

    async def _documents(self, container: str) -> list[Document]:
        async with self._deployment.container(container) as proxy:
            return [item async for item in proxy.read_all_items()]

    async def _feed(self, container: str) -> list[Document]:
        """Returns a container's documents in the order of its changes."""
        async with self._deployment.container(container) as proxy:
            pages = proxy.query_items_change_feed(start_time="Beginning")
            return [
                {name: value for name, value in item.items() if not name.startswith("_")}
                async for item in pages
            ]
