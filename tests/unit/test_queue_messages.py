"""A worker of a Storage queue in virtual time: what it holds, renews, gives back and deletes, and how often it asks."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from cosmos_outbox.inbox.deliveries import Collected
from cosmos_outbox.inbox.errors import StoreAway
from cosmos_outbox.inbox.set_aside import Delivery
from cosmos_outbox.outbox.cloud_events import CloudEvents
from cosmos_outbox.storagequeue.claims import ClaimReader
from cosmos_outbox.storagequeue.message import MessageForm
from cosmos_outbox.storagequeue.messages import Messages, PoisonQueue
from cosmos_outbox.telemetry.work import Work
from cosmos_outbox.testing.simulation.http import StoreResponse
from cosmos_outbox.testing.simulation.storage_rest import failure
from tests.support.publishing import event
from tests.support.storage_account import Account, Asked, Befalls, with_account

pytestmark = pytest.mark.filterwarnings(  # the clock is put into all of the SDK
    "ignore:azure.cosmos.errors module:DeprecationWarning"
)

FORM = MessageForm(CloudEvents("/test"), encoded=False)


def now() -> float:
    return asyncio.get_running_loop().time()


def put(account: Account, *contacts: str, queue: str = "mails") -> None:
    """One event of each."""
    for each in contacts:
        account.there.queue(queue).put(FORM.text(event(each, 1)), now())


@dataclass
class Handler:
    """Notes what it is given, and when; ``fail`` raises."""

    seconds: float = 0.0
    fail: Callable[[], None] = lambda: None
    got: list[Delivery] = field(default_factory=list)
    at: list[float] = field(default_factory=list)
    longer: float = 0.0
    """Each message takes so many seconds more than the one before."""
    in_hand: int = 0
    most: int = 0
    """So many were in hand at once."""

    async def __call__(self, delivery: Delivery) -> None:
        self.got.append(delivery)
        self.at.append(now())
        self.in_hand += 1
        self.most = max(self.most, self.in_hand)
        try:
            await asyncio.sleep(self.seconds + self.longer * len(self.got))
            self.fail()
        finally:
            self.in_hand -= 1

    @property
    def ids(self) -> list[str]:
        return [each.message_id for each in self.got]


def failing(*errors: Exception) -> Callable[[], None]:
    """These one after the other, then none."""
    left = [*errors]

    def fail() -> None:
        if left:
            raise left.pop(0)

    return fail


@asynccontextmanager
async def serving(
    account: Account, handler: Handler, *, slots: int = 8, most_deliveries: int = 20
) -> AsyncIterator[Work]:
    """A worker until the block ends; then nothing is left of it."""
    stop, work = asyncio.Event(), Work()
    async with account.clients() as (queues, _):
        queue, poison = queues.get_queue_client("mails"), queues.get_queue_client("mails-poison")
        messages = Messages(queue, poison, ClaimReader(None), most_deliveries=most_deliveries)
        working = asyncio.create_task(messages.serve(handler, stop, work, slots=slots))
        try:
            yield work
        finally:
            stop.set()
            await working
            assert (work.pulses, work.sessions) == ([], 0)


def refusing(method: str, what: str, *, times: int, code: str = "InternalError") -> Befalls:
    """So many of these requests fail; each is repeated once by the SDK."""
    left = times

    async def befalls(asked: Asked) -> StoreResponse | None:
        nonlocal left
        if (asked.method, asked.what) != (method, what) or not left:
            return None
        left -= 1
        return failure(500, code)

    return befalls


def test_no_more_messages_are_in_hand_than_there_are_slots_and_all_are_handled() -> None:
    async def story(account: Account) -> None:
        put(account, "a", "b", "c", "d", "e")
        handler, others = Handler(seconds=1, longer=0.1), asyncio.all_tasks()
        async with serving(account, handler, slots=2) as work:
            await asyncio.sleep(0.5)
            assert (work.sessions, work.received, work.waiting_for) == (2, 0, None)
            assert len(work.pulses) == 3, "of the loop, and of each message in hand"
            await asyncio.sleep(4.5)
            assert (work.sessions, work.received, work.waiting_for) == (0, 5, None)
        assert sorted(handler.ids) == ["a-1", "b-1", "c-1", "d-1", "e-1"]
        assert {each.subscription for each in handler.got} == {"mails"}
        assert handler.most == 2
        assert account.held("mails") == []
        assert asyncio.all_tasks() == others

    with_account(story)


def test_more_than_the_service_gives_in_one_answer_is_not_asked_for() -> None:
    async def story(account: Account) -> None:
        put(account, *(f"c{n}" for n in range(50)))
        handler = Handler()
        async with serving(account, handler, slots=100) as work:
            await asyncio.sleep(1)
            assert work.received == 50

    with_account(story)


def test_an_empty_queue_is_asked_every_two_seconds_and_a_busy_one_at_once() -> None:
    """Each question is paid."""

    async def story(account: Account) -> None:
        came = asyncio.Event()
        handler = Handler(fail=came.set)
        async with serving(account, handler) as work:
            await asyncio.sleep(120)
            assert 58 <= len(account.requests("GET", "messages")) <= 65
            assert work.pulses[0].silent_seconds < 3, "it goes round"
            for name, within in (("a", 2.2), ("b", 0.5)):
                came.clear()
                put(account, name)
                async with asyncio.timeout(within):
                    await came.wait()
                await asyncio.sleep(0.3)
            assert handler.ids == ["a-1", "b-1"]
            stopped = now()
        assert now() - stopped < 0.1, "a stop waits for nothing"

    with_account(story)


def test_a_queue_that_is_away_is_asked_again_after_a_pause_and_the_worker_says_so() -> None:
    async def story(account: Account) -> None:
        account.befalls = refusing("GET", "messages", times=12)
        put(account, "a")
        handler = Handler()
        async with serving(account, handler) as work:
            await asyncio.sleep(3)
            told = str(work.waiting_for)
            assert "the queue mails answers with an error (500 InternalError)" in told
            await asyncio.sleep(57)
            assert len(account.requests("GET", "messages")) < 20
            await asyncio.sleep(300)
            assert handler.ids == ["a-1"]
            assert work.waiting_for is None
            account.befalls = refusing("GET", "messages", times=1000)
            await asyncio.sleep(300)
            stopped = now()
        assert now() - stopped < 3, "the request that is under way, and no pause"

    with_account(story)


@pytest.mark.parametrize(("handled_in", "slow"), [(1.0, 0.0), (18.0, 3.0)])
def test_what_could_not_be_handled_comes_back_after_five_seconds(handled_in: float, slow: float) -> None:
    """Also when giving it back takes long, just when it would have to be renewed."""

    async def story(account: Account) -> None:
        async def befalls(asked: Asked) -> None:
            if asked.method == "PUT" and asked.query["visibilitytimeout"] == "5":
                await asyncio.sleep(slow)

        account.befalls = befalls
        put(account, "a")
        handler = Handler(handled_in, failing(StoreAway("the store is away")))
        async with serving(account, handler) as work:
            await asyncio.sleep(60)
            assert work.received == 1
        first, second = handler.at
        assert handled_in + slow + 5 <= second - first <= handled_in + slow + 5 + 2.2
        assert account.held("mails") == []

    with_account(story)


def test_a_failure_to_delete_brings_the_message_back_and_hits_it_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(account: Account) -> None:
        account.befalls = refusing("DELETE", "message", times=2)
        put(account, "a")
        handler, waited = Handler(), set[str | None]()
        async with serving(account, handler) as work:
            for _ in range(2000):
                await asyncio.sleep(0.01)
                waited.add(work.waiting_for)
        first, second = handler.at
        assert 5 <= second - first < 12
        assert waited == {None}, "others are received meanwhile"
        assert account.held("mails") == []

    with_account(story)
    assert "messages wait: the queue mails answers with an error (500 InternalError)" in caplog.text


@pytest.mark.parametrize("failures", [0, 2])
def test_a_message_in_hand_is_renewed_every_twenty_seconds_and_nobody_else_gets_it(failures: int) -> None:
    """One renewal that fails is followed by another."""

    async def story(account: Account) -> None:
        account.befalls = refusing("PUT", "message", times=failures)
        put(account, "a")
        slow, other = Handler(seconds=210), Handler()
        async with serving(account, slow), serving(account, other):
            await asyncio.sleep(200)
            assert 8 <= len(account.requests("PUT", "message")) - failures <= 10
            await asyncio.sleep(100)
        assert slow.ids + other.ids == ["a-1"]
        assert account.held("mails") == []

    with_account(story)


def test_who_has_lost_a_message_renews_it_no_more_and_deletes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(account: Account) -> None:
        put(account, "a")
        handler = Handler(seconds=100)
        async with serving(account, handler) as work:
            await asyncio.sleep(25)
            [held] = account.held("mails")
            held.receipt, held.visible = "somebody else's", now() + 1000
            await asyncio.sleep(60)
            assert len(account.requests("PUT", "message")) == 2, "one before, and one that is refused"
            await asyncio.sleep(60)
            assert work.received == 1
            put(account, "b")
            await asyncio.sleep(5)
            assert handler.ids == ["a-1", "b-1"], "it goes on"
            assert held in account.held("mails")

    with_account(story)
    assert "messages wait" not in caplog.text, "that is no failure"


def test_a_renewal_that_is_under_way_when_a_message_is_handled_does_not_bring_it_back() -> None:
    async def story(account: Account) -> None:
        account.slow = lambda asked: 1.0 if asked.method == "PUT" else 0.0
        put(account, "a")
        handler = Handler(seconds=20.5)
        async with serving(account, handler):
            await asyncio.sleep(200)
        assert (handler.ids, account.held("mails")) == (["a-1"], [])

    with_account(story)


def test_a_message_that_is_being_deleted_is_not_renewed() -> None:
    """Else what deletes it would come too late, with an old receipt."""

    async def story(account: Account) -> None:
        async def befalls(asked: Asked) -> None:
            if asked.method == "DELETE":
                await asyncio.sleep(1)

        account.befalls = befalls
        put(account, "a")
        handler = Handler(seconds=19.5)
        async with serving(account, handler):
            await asyncio.sleep(200)
        assert (handler.ids, account.held("mails")) == (["a-1"], [])

    with_account(story)


def test_what_is_handled_frees_its_slot_at_once() -> None:
    async def story(account: Account) -> None:
        put(account, "a", "b", "c")
        handler = Handler()
        async with serving(account, handler, slots=1) as work:
            await asyncio.sleep(3)
            assert work.received == 3

    with_account(story)


def test_a_message_that_came_too_often_is_in_the_poison_queue_for_ever() -> None:
    async def story(account: Account) -> None:
        account.befalls = refusing("POST", "messages", times=2)
        put(account, "a", "b")
        sent = {each.text for each in account.held("mails")}
        handler = Handler(fail=failing(*[StoreAway("the store is away")] * 4))
        async with serving(account, handler, most_deliveries=2) as work:
            await asyncio.sleep(60)
            assert work.received == 0
        assert sorted(handler.ids) == ["a-1", "a-1", "b-1", "b-1"]
        assert account.held("mails") == []
        poison = account.held("mails-poison")
        assert ({each.text for each in poison}, len(poison)) == (sent, 2)
        assert {each.until for each in poison} == {float("inf")}

    with_account(story)


def test_a_bug_in_the_handling_ends_the_worker_and_gives_the_message_back() -> None:
    async def story(account: Account) -> None:
        put(account, "a")
        with pytest.raises(ExceptionGroup) as raised:
            async with serving(account, Handler(fail=failing(ValueError("a bug")))):
                await asyncio.sleep(1)
        assert raised.group_contains(ValueError, match="a bug")
        [held] = account.held("mails")
        assert held.visible <= now() + 5

    with_account(story)


def test_a_bug_leaves_nothing_of_the_worker() -> None:
    async def story(account: Account) -> None:
        put(account, "a")
        work, others = Work(), asyncio.all_tasks()
        async with account.clients() as (queues, _):
            queue = queues.get_queue_client("mails")
            with pytest.raises(ExceptionGroup):
                await Messages(queue, queue, ClaimReader(None)).serve(
                    Handler(fail=failing(ValueError("a bug"))), asyncio.Event(), work, slots=1
                )
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == others
        assert (work.pulses, work.sessions) == ([], 0)

    with_account(story)


# -- the poison queue


@dataclass
class Kept:
    """The records that were stored."""

    seconds: float = 0.0
    ids: list[str] = field(default_factory=list)
    reasons: set[str] = field(default_factory=set)

    async def __call__(self, delivery: Delivery, reason: str) -> None:
        await asyncio.sleep(self.seconds)
        self.ids.append(delivery.message_id)
        self.reasons.add(reason)


async def collect(account: Account, kept: Kept, *, seconds: float = 60, claims: bool = False) -> Collected:
    async with account.clients() as (queues, container):
        queue = queues.get_queue_client("mails-poison")
        reader = ClaimReader(container if claims else None)
        return await PoisonQueue(queue, "mails", reader).collect(kept, seconds=seconds)


def put_claim(account: Account, contact: str) -> None:
    text, _ = FORM.claimed(event(contact, 1))
    account.there.queue("mails-poison").put(text, now())


def test_all_that_came_too_often_is_collected() -> None:
    async def story(account: Account) -> None:
        contacts = [f"c{n:02}" for n in range(40)]
        put(account, *contacts, queue="mails-poison")
        kept = Kept()
        assert await collect(account, kept) == Collected(40, emptied=True)
        assert sorted(kept.ids) == [f"{each}-1" for each in contacts]
        assert kept.reasons == {"poison: it came too often"}
        assert account.held("mails-poison") == []

    with_account(story)


def test_a_poison_queue_whose_message_somebody_else_holds_is_not_called_empty() -> None:
    async def story(account: Account) -> None:
        put(account, "a", queue="mails-poison")
        [held] = account.held("mails-poison")
        held.visible = now() + 30
        assert await collect(account, Kept()) == Collected(0, emptied=False)

    with_account(story)


def test_a_poison_queue_that_was_never_made_is_empty() -> None:
    async def story(account: Account) -> None:
        async def befalls(_: Asked) -> StoreResponse:
            return failure(404, "QueueNotFound")

        account.befalls = befalls
        assert await collect(account, Kept()) == Collected(0, emptied=True)

    with_account(story)


def test_a_poison_queue_that_cannot_be_read_is_told() -> None:
    async def story(account: Account) -> None:
        account.befalls = refusing("GET", "messages", times=2)
        with pytest.raises(
            StoreAway,
            match=r"the poison queue cannot be read: mails-poison answers with an error \(500 InternalError\)",
        ):
            await collect(account, Kept())

    with_account(story)


def test_collecting_ends_with_its_time_and_says_that_more_may_be_there() -> None:
    async def story(account: Account) -> None:
        put(account, *(f"c{n}" for n in range(40)), queue="mails-poison")
        assert await collect(account, Kept(), seconds=0) == Collected(0, emptied=False)
        assert account.asked == [], "there was no time"
        kept = Kept(seconds=1)
        assert await collect(account, kept, seconds=5) == Collected(32, emptied=False), "what is in hand ends"
        assert len(account.held("mails-poison")) == 40 - 32

    with_account(story)


def test_a_claim_that_cannot_be_read_holds_up_no_other_message_and_is_told_at_the_end() -> None:
    async def story(account: Account) -> None:
        for n in range(33):
            put_claim(account, f"c{n}")
        put(account, "a", queue="mails-poison")
        kept = Kept()
        with pytest.raises(StoreAway, match="set STORAGEQUEUE_CLAIMS, as its sender has it"):
            await collect(account, kept)
        assert (kept.ids, len(account.held("mails-poison"))) == (["a-1"], 33)

    with_account(story)


def test_claims_that_are_all_away_are_not_waited_for_one_after_the_other() -> None:
    async def story(account: Account) -> None:
        async def befalls(asked: Asked) -> StoreResponse | None:
            if asked.what != "blob":
                return None
            await asyncio.sleep(30)
            return failure(500, "OperationTimedOut")

        account.befalls = befalls
        for n in range(5):
            put_claim(account, f"c{n}")
        with pytest.raises(
            StoreAway, match=r"the blob container event-claims \(STORAGEQUEUE_CLAIM_CONTAINER\)"
        ):
            await collect(account, Kept(), seconds=20, claims=True)
        assert now() < 100

    with_account(story)
