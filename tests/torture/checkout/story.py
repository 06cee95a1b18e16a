"""One run: customers buy and pay while processes are killed and paused, and answers are lost; then all is judged.

A Functions host, a second relay and a second subscriber share the work, so that each may find what another has left.
The messages go over a topic, or over queues that keep no order and drop no copies; another relay sends all events to a
webhook, too.
"""

import asyncio
import random
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import aiohttp
from azure.cosmos.aio import CosmosClient
from azure.storage.queue.aio import QueueServiceClient

from cosmos_outbox.cosmos.aggregates.documents import EVENT_TYPE
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.outbox.canonical import as_sent
from cosmos_outbox.testing import LocalAzure, Message, Program
from devstack.testing import Process, Service
from examples.checkout.payment import payment_of
from examples.checkout.tests.at_rest import SUPPLY
from outbox_simulation.derived_invariants.service_world import stored_event
from outbox_simulation.invariants.violation import Violation
from tests.support.paths import ROOT
from tests.torture.checkout.judged import judge, late_by, left_behind
from tests.torture.checkout.receiver import Receiver
from tests.torture.checkout.service import service

HOME = Path(__file__).parent
PAY_WITHIN_SECONDS = 10
PATIENCE_SECONDS = 150.0
HELD_SECONDS = 600.0
"""So long a Functions host that is killed keeps what it has read of a queue from all others."""
CUSTOMERS, ARTICLES = 5, 6
TOPIC = "checkout-events"
TRANSPORTS = ("servicebus", "storagequeue")

_SESSIONS = 8
_UNANSWERED = (aiohttp.ClientError, TimeoutError, AssertionError)
_OF_THE_STORE: Sequence[dict[str, Any]] = (
    {"kind": "drop-after-commit", "count": 3, "operation": "batch", "container": "checkout"},
    {"kind": "drop-after-commit", "count": 3, "container": "order-letters"},
    {"kind": "fail-before-commit", "count": 5},
    {"kind": "throttle", "count": 40, "retryAfterMs": 20},
    {"kind": "lag", "count": None, "forSeconds": 6, "seconds": 5, "share": 0.7},
    {"kind": "late", "count": 6, "seconds": 6.0, "container": "checkout"},
    {"kind": "unavailable", "count": None, "forSeconds": 2},
)
_OF_THE_BROKER: Sequence[dict[str, Any]] = (
    {"kind": "drop-after-commit", "count": 3},
    {"kind": "throttle", "count": 20},
    {"kind": "detach"},
    {"kind": "disconnect"},
)


@dataclass
class Told:
    """What came out of a run."""

    violations: list[Violation]
    strikes: list[str] = field(default_factory=list)
    orders: int = 0
    events: int = 0
    letters: int = 0
    paid: int = 0
    late: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        what = "\n".join(map(str, self.violations)) or "no violation"
        kinds = ", ".join(f"{self.strikes.count(each)} {each}" for each in sorted({*self.strikes}))
        latest = f"{max(self.late, default=0):.1f} s at most"
        met = f"{len(self.late)} deadlines met, late by {latest}"
        counts = f"{self.orders} orders, {self.paid} paid, {self.events} events, {self.letters} letters"
        return f"{what}\n{counts}; {met}\n{kinds}"


async def run(folder: Path, seconds: float, seed: int, transport: str = TRANSPORTS[0]) -> Told:
    """All of it. Raises AssertionError where something cannot be started."""
    letters = folder / "letters"
    letters.touch()
    settings = {
        "PYTHONPATH": str(ROOT), "PAY_WITHIN_SECONDS": str(PAY_WITHIN_SECONDS), "LETTERS": str(letters),
        "SERVICEBUS_SESSIONS": str(_SESSIONS), "TRANSPORT": transport,
    }  # fmt: skip
    azure = LocalAzure(folder, settings=settings)
    receiver = Receiver(azure)
    await asyncio.to_thread(azure.start)
    try:
        queues = await _queues(azure) if transport == "storagequeue" else None
        await asyncio.to_thread(azure.make, HOME)
        takes = await asyncio.to_thread(receiver.start)
        await asyncio.to_thread(azure.run, HOME)
        named = ("--service", "tests.torture.checkout.service")
        workers = [await asyncio.to_thread(azure.command, each, *named) for each in ("relay", "subscriber")]
        to_receiver = partial(
            azure.program, sys.executable, "-m", "cosmos_outbox", "relay", *named, ready="the relay works",
            folder=None, name="partner-relay", **receiver.settings,
        )  # fmt: skip
        workers.append(await asyncio.to_thread(to_receiver))
        chance, ends = random.Random(seed), time.monotonic() + seconds
        return await _Story(azure, [*workers, takes], receiver, queues, letters, chance, ends).whole()
    finally:
        await asyncio.to_thread(azure.stop)


async def _queues(azure: LocalAzure) -> Service:
    """One for each subscriber."""
    storage = await asyncio.to_thread(azure.add, Service("storage", azure.folder / "storage"))
    azure.give(STORAGEQUEUE=storage.connection_string)
    async with QueueServiceClient.from_connection_string(storage.connection_string) as queues:
        for each in service.subscribers:
            await queues.create_queue(each.subscription.resolve(azure.settings))
    return storage


class _Story:
    def __init__(
        self,
        azure: LocalAzure,
        workers: list[Program],
        receiver: Receiver,
        queues: Service | None,
        letters: Path,
        chance: random.Random,
        ends: float,
    ) -> None:
        self._azure, self._workers, self._letters = azure, workers, letters
        self._receiver, self._queues = receiver, queues
        self._chance, self._ends = chance, ends
        self._told = Told([])
        self._messages: list[Message] = []

    async def whole(self) -> Told:
        timeout = aiohttp.ClientTimeout(10)
        async with aiohttp.ClientSession(self._azure.functions.address, timeout=timeout) as api:
            articles = [await self._insist(api, "articles", {"available": SUPPLY}) for _ in range(ARTICLES)]
            customers = (self._customer(api, articles) for _ in range(CUSTOMERS))
            await asyncio.gather(self._nemesis(), self._nemesis(), *customers)
        await self._heal()
        holds = self._queues is not None and "functions killed" in self._told.strikes
        until = time.monotonic() + PATIENCE_SECONDS + (HELD_SECONDS if holds else 0.0)
        while (wrong := await self._judged()) and any(each.may_pass for each in wrong):
            if time.monotonic() > until:
                break
            await asyncio.sleep(2)
        self._told.violations = wrong
        return self._told

    # -- the customers

    async def _customer(self, api: aiohttp.ClientSession, articles: list[str]) -> None:
        while time.monotonic() < self._ends:
            wanted = {
                "articleId": self._chance.choice(articles), "quantity": self._chance.randint(1, 2), "amount": 9,
            }  # fmt: skip
            order = await self._insist(api, "orders", wanted)
            self._told.orders += 1
            payment = f"payments/{payment_of(UUID(order))}/settle"
            if self._chance.random() < 0.8:
                await self._pay(api, payment)

    async def _pay(self, api: aiohttp.ClientSession, payment: str) -> None:
        """At once, or at the last moment; some pay twice."""
        times, first = self._chance.choice([1, 1, 2]), self._chance.choice([0, 0, PAY_WITHIN_SECONDS - 2])
        late = time.monotonic() + PAY_WITHIN_SECONDS + 2
        await asyncio.sleep(first)
        while times and time.monotonic() < late:
            with suppress(*_UNANSWERED):
                await self._post(api, payment, {}, {})
                times -= 1
            await asyncio.sleep(0.5)

    async def _insist(self, api: aiohttp.ClientSession, path: str, body: object) -> str:
        """Ask with one key until there is an answer. The id of what was made."""
        key = {"Idempotency-Key": str(uuid4())}
        while True:
            with suppress(*_UNANSWERED):
                return str((await self._post(api, path, body, key))["id"])
            await asyncio.sleep(0.3)

    @staticmethod
    async def _post(
        api: aiohttp.ClientSession, path: str, body: object, headers: dict[str, str]
    ) -> dict[str, Any]:
        async with api.post(f"/api/{path}", json=body, headers=headers) as answer:
            assert answer.status < 300, await answer.text()
            told: dict[str, Any] = await answer.json()
            return told

    # -- what befalls

    async def _nemesis(self) -> None:
        azure = self._azure
        processes: list[Process] = [azure.functions, *self._workers] * 2 + [azure.cosmos]
        paused: list[Process] = [azure.functions, *self._workers]
        strikes: list[Callable[[], Awaitable[str]]] = [
            lambda: self._kill(self._chance.choice(processes)),
            lambda: self._pause(self._chance.choice(paused)),
            lambda: self._fault(azure.cosmos, self._chance.choice(_OF_THE_STORE)),
        ]
        if self._queues is None:
            processes.append(azure.servicebus)
            strikes += [
                lambda: self._fault(azure.servicebus, self._chance.choice(_OF_THE_BROKER)),
                self._publish_again,
            ]
        else:  # what Azurite acknowledged within 5 s before it is killed is lost: it only stands still
            paused.append(self._queues)
        while time.monotonic() < self._ends:
            await asyncio.sleep(self._chance.uniform(0.3, 2.5))
            self._told.strikes.append(await self._chance.choice(strikes)())

    async def _kill(self, victim: Process) -> str:
        await asyncio.to_thread(victim.restart)
        return f"{victim.name} killed"

    async def _pause(self, victim: Process) -> str:
        """Mostly for longer than its locks."""
        with suppress(ProcessLookupError):
            victim.pause()
            try:
                await asyncio.sleep(self._chance.uniform(3, 9))
            finally:
                victim.resume()
        return f"{victim.name} paused"

    async def _fault(self, server: Any, fault: dict[str, Any]) -> str:
        with suppress(aiohttp.ClientError, TimeoutError, OSError, AssertionError):
            await server.faults.add(**fault)
        return f"{server.name} {fault['kind']}"

    async def _publish_again(self) -> str:
        """As other messages, with the ids of the events: what the topic takes for new.

        All of an aggregate, in order: the relay may have sent none of them yet.
        """
        with suppress(Exception):  # whatever the broken parts raise
            events = [each for each in await self._stored() if each.get("type") == EVENT_TYPE]
            aggregates = sorted({each["partitionKey"] for each in events})
            some = set(self._chance.sample(aggregates, min(3, len(aggregates))))
            for each in sorted(events, key=lambda event: event["data"]["sequence"]):
                if each["partitionKey"] in some:
                    await self._azure.send(_message(each), topic=TOPIC)
        return "published again"

    async def _heal(self) -> None:
        for each in (self._azure.cosmos, self._azure.servicebus):
            await each.faults.clear()
        for process in (self._azure.functions, *self._workers):
            if not process.is_running:
                await asyncio.to_thread(process.start)

    # -- the end

    async def _judged(self) -> list[Violation]:
        letters, stored = self._letters.read_text().split(), await self._stored()
        if self._queues is None:
            self._messages += await self._azure.receive("checkout-watch", 100_000, topic=TOPIC, within=12)
        else:  # nobody sees a queue's messages beside its receiver, whose reactions and letters show that they came
            self._messages = [_message(each) for each in stored if each.get("type") == EVENT_TYPE]
        found = left_behind(service, stored, self._messages, letters)
        self._told.paid = sum(each.events[0].action == "OrderPaid" for each in found.changes)
        self._told.events, self._told.letters, self._told.late = (
            len(found.changes),
            len(letters),
            late_by(found),
        )
        return [*judge(found, service, utc_now()), *await self._receiver.judge(found)]

    async def _stored(self) -> list[dict[str, Any]]:
        async with CosmosClient.from_connection_string(self._azure.cosmos.connection_string) as client:
            container = client.get_database_client("checkout").get_container_client("checkout")
            return [dict(item) async for item in container.read_all_items()]


def _message(stored: dict[str, Any]) -> Message:
    of = stored_event(stored).aggregate
    properties = {
        "aggregateType": of.type, "cloudEvents_subject": of.id,
        "cloudEvents_source": f"/{service.name}", "schemaVersion": stored["schemaVersion"],
    }  # fmt: skip
    return Message(as_sent(stored["data"]), properties)
