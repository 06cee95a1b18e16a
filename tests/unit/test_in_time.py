"""A call of the broker's SDK ends in time, though the SDK loses a cancellation, as ``asyncio.wait_for`` of 3.11 can."""

import asyncio
import gc
import weakref
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from azure.servicebus.amqp import AmqpMessageBodyType

from cosmos_outbox.inbox.deliveries import Collected
from cosmos_outbox.servicebus.dead_letters import DeadLetters
from cosmos_outbox.servicebus.in_time import CANCELLATIONS, in_time
from cosmos_outbox.servicebus.senders import Senders
from cosmos_outbox.servicebus.sessions import Sessions
from cosmos_outbox.telemetry.work import Work
from devstack.testing import eventually
from tests.support.virtual_time import in_virtual_time

PATIENCE = 20
"""Until a test that hangs is ended, in seconds: no test takes as long."""


async def deaf(cancellations: int) -> None:
    """Loses so many cancellations, then ends with the next one."""
    for _ in range(cancellations):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue
    await asyncio.Event().wait()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cosmos_outbox.servicebus.in_time.AGAIN_SECONDS", 0.01)


@dataclass
class Receiver:
    """Loses one cancellation in the method of this name; receives nothing."""

    deaf_in: str
    calls: list[str] = field(default_factory=list)
    session: Any = None

    async def _called(self, name: str) -> None:
        self.calls.append(name)
        if name == self.deaf_in:
            await deaf(1)

    async def __aenter__(self) -> "Receiver":
        await self._called("open")
        return self

    async def receive_messages(self, *_: object, **__: object) -> list[Any]:
        await self._called("receive")
        return []

    async def close(self) -> None:
        await self._called("close")


@dataclass
class Client:
    """Gives receivers of one kind."""

    deaf_in: str
    given: list[Receiver] = field(default_factory=list)

    def get_subscription_receiver(self, *_: object, **__: object) -> Receiver:
        self.given.append(Receiver(self.deaf_in))
        return self.given[-1]


@dataclass
class Link:
    """A sender of the SDK that loses one cancellation in the method of this name, and gives no answer there."""

    deaf_in: str
    closed: bool = False
    _max_message_size_on_link = 2_000

    async def _called(self, name: str) -> None:
        if name == self.deaf_in:
            await deaf(1)

    async def create_message_batch(self) -> Any:
        await self._called("open")
        return SimpleNamespace(max_size_in_bytes=1_000)

    async def send_messages(self, _message: object, **_: object) -> None:
        await self._called("send")

    async def close(self) -> None:
        self.closed = True
        await self._called("close")


@dataclass
class SendingClient:
    """Gives links, the first ones deaf."""

    deaf_in: list[str]
    links: list[Link] = field(default_factory=list)

    def get_topic_sender(self, _topic: str) -> Link:
        self.links.append(Link(self.deaf_in.pop(0) if self.deaf_in else "nowhere"))
        return self.links[-1]


@pytest.mark.parametrize("deaf_in", ["open", "send", "close"])
async def test_sending_goes_on_though_the_sdk_loses_a_cancellation_of_each_sender(
    deaf_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many senders as there may be: if their places stayed taken, nothing would ever be sent again."""
    monkeypatch.setattr("cosmos_outbox.servicebus.senders.SEND_TIMEOUT_SECONDS", 0.05)
    monkeypatch.setattr("cosmos_outbox.servicebus.senders._CLOSE_TIMEOUT_SECONDS", 0.05)
    client = SendingClient([deaf_in] * 2)
    senders = Senders(cast(Any, client), "topic", 2)

    async def send_one() -> None:
        async with asyncio.timeout(PATIENCE):
            sender = await senders.take()
            try:
                await sender.send([cast(Any, "message")])
                sender.usable = deaf_in != "close"  # as after a failure: it is closed
            finally:
                await senders.give_back(sender)

    outcomes = await asyncio.gather(send_one(), send_one(), return_exceptions=True)
    expected = type(None) if deaf_in == "close" else TimeoutError
    assert [type(outcome) for outcome in outcomes] == [expected] * 2
    await asyncio.gather(send_one(), send_one())
    assert [link.closed for link in client.links[:2]] == [True, True]
    async with asyncio.timeout(PATIENCE):
        await senders.close()


async def test_senders_are_closed_though_the_sdk_loses_the_cancellation_of_an_opening() -> None:
    client = SendingClient(["open"])
    senders = Senders(cast(Any, client), "topic", 1)
    waiting = asyncio.create_task(senders.take())
    await eventually(lambda: bool(client.links))
    async with asyncio.timeout(PATIENCE):
        await senders.close()
        with pytest.raises(ValueError, match="closed"):
            await waiting


async def nothing(*_: object) -> None:
    raise AssertionError("nothing was received")


@pytest.mark.parametrize("deaf_in", ["open", "receive", "close"])
async def test_collecting_dead_letters_ends_though_the_sdk_loses_a_cancellation(
    deaf_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cosmos_outbox.servicebus.dead_letters.SILENCE_SECONDS", 0.05)
    monkeypatch.setattr("cosmos_outbox.servicebus.dead_letters._SETTLE_SECONDS", 0.05)
    client = Client(deaf_in)
    async with asyncio.timeout(PATIENCE):
        found = await DeadLetters(cast(Any, client), "t", "s").collect(nothing, seconds=0.05)
    assert found == Collected(0, emptied=deaf_in == "close")
    assert client.given[0].calls[-1] == "close"


@dataclass
class Endless(Receiver):
    """A dead-letter queue that has always one message more."""

    async def receive_messages(self, *_: object, **__: object) -> list[Any]:
        return [
            SimpleNamespace(
                body_type=AmqpMessageBodyType.DATA, body=[b"x"], message_id="m", enqueued_sequence_number=None,
                sequence_number=1, application_properties=None, dead_letter_reason=None,
            )
        ]  # fmt: skip

    async def complete_message(self, _message: object) -> None:
        self.calls.append("complete")


def test_collecting_ends_in_time_though_there_is_always_more() -> None:
    receiver, reasons = Endless("nowhere"), list[str]()

    async def keep(_: object, reason: str) -> None:
        reasons.append(reason)
        await asyncio.sleep(1)

    async def story() -> None:
        client = SimpleNamespace(get_subscription_receiver=lambda *_, **__: receiver)
        found = await DeadLetters(cast(Any, client), "t", "s").collect(keep, seconds=5)
        assert found == Collected(5, emptied=False)

    in_virtual_time(story())
    assert receiver.calls == ["open", *["complete"] * 5, "close"]
    assert set(reasons) == {"dead letter: no reason given"}


@pytest.mark.parametrize("deaf_in", ["open", "close"])
async def test_a_slot_asks_for_the_next_session_though_the_sdk_loses_a_cancellation(
    deaf_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cosmos_outbox.servicebus.sessions._CLOSE_SECONDS", 0.05)
    monkeypatch.setattr("cosmos_outbox.telemetry.work._FIRST_PAUSE_SECONDS", 0.01)
    client, stop = Client(deaf_in), asyncio.Event()
    sessions = Sessions(cast(Any, client), "t", "s", wait_seconds=0.03, opening_seconds=0.02)
    serving = asyncio.create_task(sessions.serve(nothing, stop, Work(), slots=1))
    async with asyncio.timeout(PATIENCE):
        await eventually(lambda: len(client.given) > 2)
        stop.set()
        await serving


async def test_what_comes_although_it_was_cancelled_is_not_lost() -> None:
    """Messages that were received as the time was over are locked: nobody else would get them for a while."""

    async def late() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "messages"
        raise AssertionError

    assert await in_time(late(), asyncio.get_running_loop().time()) == "messages"


async def test_a_call_that_no_cancellation_ends_is_left(caplog: pytest.LogCaptureFixture) -> None:
    over = asyncio.Event()

    async def never() -> None:
        while not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                continue

    async with asyncio.timeout(PATIENCE):
        with pytest.raises(TimeoutError):
            await in_time(never(), asyncio.get_running_loop().time())
    assert "does not end" in caplog.text
    over.set()


async def test_a_call_that_is_left_goes_on_until_it_ends_by_itself() -> None:
    """Collected as garbage it would end in the middle, and asyncio would complain."""
    before = asyncio.all_tasks()
    with pytest.raises(TimeoutError):
        await in_time(deaf(CANCELLATIONS), asyncio.get_running_loop().time())
    gc.collect()
    [task] = asyncio.all_tasks() - before
    task.cancel()
    await asyncio.wait({task})
    ended = weakref.ref(task)
    del task
    gc.collect()
    assert ended() is None, "nothing is kept of it"


def cancel_all_others() -> None:
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


@pytest.mark.parametrize("cancellations", [0, CANCELLATIONS])
async def test_an_error_that_nobody_waits_for_any_more_is_no_complaint(cancellations: int) -> None:
    """Of a call that fails when whoever waited for it is gone, or that was left."""
    complaints, loop, over = list[object](), asyncio.get_running_loop(), asyncio.Event()
    loop.set_exception_handler(lambda _, told: complaints.append(told))

    async def fails() -> None:
        try:
            await deaf(cancellations)
        except asyncio.CancelledError:
            over.set()
            raise OSError("the connection is closed") from None

    waiting = asyncio.create_task(in_time(fails(), loop.time() + PATIENCE))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    cancel_all_others()
    await over.wait()
    await asyncio.sleep(0)
    del waiting
    gc.collect()
    assert complaints == []


async def test_who_waits_and_is_cancelled_ends_too() -> None:
    loop = asyncio.get_running_loop()
    waiting = asyncio.create_task(in_time(deaf(2), loop.time() + PATIENCE))
    await asyncio.sleep(0)
    waiting.cancel()
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(asyncio.CancelledError):
            await waiting
