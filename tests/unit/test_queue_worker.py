"""A worker of a Storage queue over an account in memory: what it holds, renews, gives back, deletes and collects."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from azure.core.pipeline.transport import AioHttpTransport
from azure.storage.queue.aio import QueueServiceClient

from cosmos_outbox.inbox.errors import StoreUnavailable
from cosmos_outbox.inbox.message import Delivery
from cosmos_outbox.inbox.set_aside import Collected
from cosmos_outbox.outbox.publisher import CloudEvents
from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.storagequeue.client import queue_service
from cosmos_outbox.storagequeue.message import text_of
from cosmos_outbox.storagequeue.receiver import PoisonQueue, QueueReceiver
from cosmos_outbox.telemetry.liveness import SlotHealth
from devstack.http_in_memory import SentRequest, StoreResponse
from outbox_simulation.engine import sdk_clock
from outbox_simulation.engine.fault_injection import EPOCH
from outbox_simulation.engine.http import session
from outbox_simulation.engine.storage_account import HeldMessage, StorageAccount
from outbox_simulation.engine.storage_queues import CONNECTION, PACKAGES
from outbox_simulation.engine.storage_rest import serve
from tests.support.publishing import event
from tests.support.virtual_time import in_virtual_time

pytestmark = pytest.mark.filterwarnings(  # the clock is put into all of the SDK
    "ignore:azure.cosmos.errors module:DeprecationWarning"
)

FORM = partial(text_of, service=CloudEvents("/test"), encoded=False)


def now() -> float:
    return asyncio.get_running_loop().time()


@dataclass
class Account:
    there: StorageAccount = field(default_factory=StorageAccount)
    renewals: int = 0
    cancelled: int = 0
    """How many of the next requests end as if somebody had cancelled them."""

    async def _send(self, request: SentRequest) -> StoreResponse:
        if self.cancelled:
            self.cancelled -= 1
            raise asyncio.CancelledError
        self.renewals += request.method == "PUT"
        await asyncio.sleep(0.02)
        return serve(self.there, request, now(), lambda at: EPOCH + timedelta(seconds=at), list)

    def queues(self) -> QueueServiceClient:
        def http() -> Any:
            return AioHttpTransport(session=session(self._send), session_owner=False, use_env_settings=False)

        return queue_service(Connection(connection_string=CONNECTION), None, http)

    def put(self, *contacts: str, queue: str = "mails") -> None:
        for each in contacts:
            self.there.queue(queue).put(FORM(event(each, 1)), now())

    def held(self, queue: str = "mails") -> list[HeldMessage]:
        return self.there.queue(queue).messages


@dataclass
class Handler:
    seconds: float = 0.0
    errors: list[Exception] = field(default_factory=list)
    got: list[str] = field(default_factory=list)
    at: list[float] = field(default_factory=list)
    in_hand: int = 0
    most: int = 0

    async def __call__(self, delivery: Delivery) -> None:
        self.got.append(delivery.message_id)
        self.at.append(now())
        self.in_hand += 1
        self.most = max(self.most, self.in_hand)
        await asyncio.sleep(self.seconds)
        self.in_hand -= 1
        if self.errors:
            raise self.errors.pop(0)


@asynccontextmanager
async def serving(account: Account, handler: Handler, **options: int) -> AsyncIterator[SlotHealth]:
    stop, health, slots = asyncio.Event(), SlotHealth(), options.pop("slots", 8)
    async with account.queues() as queues:
        queue, poison = queues.get_queue_client("mails"), queues.get_queue_client("mails-poison")
        messages = QueueReceiver(queue, poison, **options)
        working = asyncio.create_task(messages.serve(handler, stop, health, slots=slots))
        try:
            yield health
        finally:
            stop.set()
            await working


def run(story: Callable[[Account], Coroutine[Any, Any, None]]) -> None:
    sdk_clock.install(*PACKAGES)
    in_virtual_time(story(Account()))


def test_all_messages_are_handled_and_no_more_at_once_than_slots() -> None:
    async def story(account: Account) -> None:
        account.put("a", "b", "c", "d", "e")
        handler = Handler(seconds=1)
        async with serving(account, handler, slots=2):
            await asyncio.sleep(10)
        assert sorted(handler.got) == ["a-1", "b-1", "c-1", "d-1", "e-1"]
        assert (handler.most, account.held()) == (2, [])

    run(story)


def test_a_message_whose_store_is_away_comes_back_and_is_poison_in_the_end() -> None:
    async def story(account: Account) -> None:
        account.put("a", "b")
        handler = Handler(errors=[StoreUnavailable("away")] * 3)
        async with serving(account, handler, slots=1, most_deliveries=2):
            await asyncio.sleep(60)
        assert sorted(handler.got) == ["a-1", "a-1", "b-1", "b-1"]
        assert handler.at[-1] - handler.at[0] >= 5
        assert account.held() == []
        assert len(account.held("mails-poison")) == 1

    run(story)


def test_a_worker_goes_on_when_its_calls_are_cancelled_elsewhere() -> None:
    async def story(account: Account) -> None:
        account.put("a")
        handler = Handler(seconds=1)
        async with serving(account, handler) as health:
            account.cancelled = 1
            await asyncio.sleep(0.01)
            assert health.waiting_for is not None
            await asyncio.sleep(60)
        assert (handler.got, account.held()) == (["a-1"], [])

    run(story)


def test_a_message_in_hand_is_renewed_and_no_other_worker_gets_it() -> None:
    async def story(account: Account) -> None:
        account.put("a")
        slow, other = Handler(seconds=210), Handler()
        async with serving(account, slow), serving(account, other):
            await asyncio.sleep(300)
        assert (slow.got + other.got, account.held()) == (["a-1"], [])

    run(story)


def test_a_worker_that_has_lost_a_message_deletes_nothing() -> None:
    async def story(account: Account) -> None:
        account.put("a")
        async with serving(account, Handler(seconds=100)) as health:
            await asyncio.sleep(25)
            [held] = account.held()
            held.receipt, held.visible = "somebody else's", now() + 1000
            await asyncio.sleep(100)
            assert (health.received, account.renewals) == (1, 2), (
                "one renewal before, and one that is refused"
            )
        assert account.held() == [held]

    run(story)


def test_a_bug_in_the_handling_ends_the_worker_and_gives_the_message_back() -> None:
    async def story(account: Account) -> None:
        account.put("a")
        with pytest.raises(ExceptionGroup) as raised:
            async with serving(account, Handler(errors=[ValueError("a bug")])):
                await asyncio.sleep(1)
        assert raised.group_contains(ValueError, match="a bug")
        [held] = account.held()
        assert held.visible <= now() + 5

    run(story)


@pytest.mark.parametrize("held_by_another", [False, True])
def test_poison_is_collected_and_empty_only_if_no_message_is_held(held_by_another: bool) -> None:
    async def story(account: Account) -> None:
        account.put(*(f"c{n:02}" for n in range(40)), queue="mails-poison")
        if held_by_another:
            account.held("mails-poison")[0].visible = now() + 300
        kept: list[str] = []

        async def keep(delivery: Delivery, reason: str) -> None:
            kept.append(delivery.message_id)

        async with account.queues() as queues:
            poison = PoisonQueue(queues.get_queue_client("mails-poison"), "mails")
            found = await poison.collect(keep, seconds=60)
        count = 39 if held_by_another else 40
        assert (found, len(kept)) == (Collected(count, emptied=not held_by_another), count)

    run(story)
