"""The broker without a socket: the same clock, chance and bytes give the same answers, to the byte."""

import asyncio
import random
from typing import Any

import pytest

from devstack.service import CannotStart
from devstack.servicebus.broker.message import Message
from devstack.servicebus.codec import performatives as p
from devstack.servicebus.codec.errors import ARGUMENT_ERROR, AmqpError
from devstack.servicebus.codec.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, frame, transfer_frames
from devstack.servicebus.codec.message import ParsedMessage, read_data
from devstack.servicebus.codec.values import Symbol
from devstack.servicebus.in_memory import Fault, Onlooker, ServiceBusInMemory, in_memory
from devstack.testing import eventually
from devstack.testing.amqp import KEY, KEY_NAME, message

NOW = 1_700_000_000.0
SUBSCRIPTION = {"Name": "s", "Properties": {"RequiresSession": True}}
TOPIC = {"Name": "t", "Properties": {"RequiresDuplicateDetection": True}, "Subscriptions": [SUBSCRIPTION]}
CONFIG = {"UserConfig": {"Namespaces": [{"Name": "n", "Topics": [TOPIC]}]}}
ANY_SESSION = p.Source("t/subscriptions/s", filter={Symbol("com.microsoft:session-filter"): None})
PATH = "t/subscriptions/s"


class Line(asyncio.Transport):
    """What the broker says to one client."""

    def __init__(self, broker: ServiceBusInMemory) -> None:
        super().__init__()
        self.said = b""
        self.over = False
        self.hears = broker.connection()
        self.hears.connection_made(self)

    def write(self, data: Any) -> None:
        self.said += data

    def close(self) -> None:
        self.over = True

    abort = close

    def begin(self) -> None:
        """A session, with the key."""
        said = p.SaslInit("PLAIN", f"\0{KEY_NAME}\0{KEY}".encode())
        self.hears.data_received(SASL_HEADER + frame(0, said, SASL_FRAME) + AMQP_HEADER)
        self.hears.data_received(frame(0, p.Open("client", max_frame_size=65536)))
        self.hears.data_received(frame(0, p.Begin(None, 0, 10, 10)))

    def send(self, *messages: bytes) -> None:
        """To the topic."""
        self.begin()
        link = p.Attach("out", 0, False, 0, 0, p.Source("here"), p.Target("t"), initial_delivery_count=0)
        self.hears.data_received(frame(0, link))
        for number, each in enumerate(messages):
            tag = number.to_bytes(4, "big")
            frames = transfer_frames(0, 0, number, tag, each, settled=False, max_frame_size=65536)
            self.hears.data_received(b"".join(frames))


async def story(seed: int) -> bytes:
    with in_memory(clock=lambda: NOW, chance=random.Random(seed), config=CONFIG) as broker:
        line = Line(broker)
        line.send(*(message(b"x", message_id=name, session_id="a") for name in ("1", "2", "1")))
        await eventually(lambda: broker.messages(PATH) == 2)
        assert (broker.traffic.messages, broker.messages(PATH)) == (3, 2)
        assert broker.take_away(PATH, "a")
        assert not broker.take_away(PATH, "b")
        assert broker.messages(PATH) == 1
        broker.happen(Fault(kind="disconnect"))
        assert line.over
        line.hears.connection_lost(None)
        return line.said


async def test_the_answers_depend_on_the_clock_the_chance_and_what_is_sent() -> None:
    assert await story(1) == await story(1)


async def test_a_fault_meets_the_next_send() -> None:
    with in_memory(clock=lambda: NOW, chance=random.Random(1), config=CONFIG) as broker:
        broker.happen(Fault(kind="fail-before-commit"))
        line = Line(broker)
        line.send(message(b"x", message_id="1", session_id="a"))
        assert line.over
        assert broker.messages(PATH) == 0
        line.hears.connection_lost(None)


async def test_a_receiver_of_any_session_is_refused_after_65_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the service does it where the link names no time-out: https://github.com/Azure/azure-sdk-for-net/issues/30962."""
    loop, passed = asyncio.get_running_loop(), 0.0
    begun = loop.time()
    monkeypatch.setattr(loop, "time", lambda: begun + passed)
    with in_memory(clock=lambda: NOW, chance=random.Random(1), config=CONFIG) as broker:
        line = Line(broker)
        line.begin()
        line.hears.data_received(frame(0, p.Attach("in", 0, True, 0, 0, ANY_SESSION, p.Target("here"))))
        for passed, refused in ((64.9, False), (65.1, True)):  # noqa: B007 - the loop's clock reads it
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert (b"com.microsoft:timeout" in line.said) is refused
        line.hears.connection_lost(None)


async def test_a_configuration_that_is_wrong_says_where() -> None:
    wrong = {"UserConfig": {"Namespaces": [{"Name": "n", "Topics": [{}]}]}}
    with (
        pytest.raises(CannotStart, match=r"the configuration: UserConfig\.Namespaces\.0\.Topics\.0\.Name"),
        in_memory(clock=lambda: NOW, chance=random.Random(1), config=wrong),
    ):
        pass


class Noting(Onlooker):
    """Writes down what it is shown; ``refuses``: the id of a message."""

    def __init__(self, refuses: str = "") -> None:
        self.seen: list[str] = []
        self._refuses = refuses

    def check(self, path: str, parsed: ParsedMessage) -> None:
        if parsed.message_id == self._refuses:
            raise AmqpError(ARGUMENT_ERROR, "refused here")

    def accepted(self, path: str, parsed: ParsedMessage, number: int) -> None:
        self.seen.append(f"{path} accepted {parsed.message_id}: {read_data(parsed).decode()}")

    def dropped(self, path: str, parsed: ParsedMessage) -> None:
        self.seen.append(f"{path} dropped {parsed.message_id}")

    def buried(self, path: str, message: Message) -> None:
        self.seen.append(f"{path} buried {message.parsed.message_id}")


async def test_an_onlooker_sees_each_step_and_can_refuse_a_message() -> None:
    with in_memory(clock=lambda: NOW, chance=random.Random(1), config=CONFIG) as broker:
        onlooker = Noting(refuses="2")
        broker.show(onlooker)
        line = Line(broker)
        line.send(*(message(b"x", message_id=name, session_id="a") for name in ("1", "2", "3", "1")))
        await eventually(lambda: broker.messages(PATH) == 2)
        assert broker.bury(PATH, "1", "by hand")
        assert not broker.bury(PATH, "1", "by hand"), "it is a dead letter already"
        assert broker.lose(PATH, "3")
        assert not broker.lose(PATH, "3")
        assert broker.messages(PATH) == 1
        assert not broker.lose_lock(PATH, "a"), "nobody holds it"
        assert onlooker.seen == ["t accepted 1: x", "t accepted 3: x", "t dropped 1", f"{PATH} buried 1"]
