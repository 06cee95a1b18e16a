"""The protocol engine by itself: bytes and times go in, bytes and what the client asks for come out."""

from dataclasses import dataclass, field

import pytest

from devstack.servicebus.amqp.cbs import DEVELOPMENT_KEY
from devstack.servicebus.amqp.connection import AmqpConnection, Event
from devstack.servicebus.amqp.session import AttachAsked
from devstack.servicebus.amqp.wire import Wire
from devstack.servicebus.codec import performatives as p
from devstack.servicebus.codec.composites import decode_performative, read_as
from devstack.servicebus.codec.errors import AmqpError
from devstack.servicebus.codec.frames import AMQP_HEADER, EMPTY_FRAME, frame, take_frame

IDLE = 60.0
ATTACH = p.Attach("link", 0, True, 0, 0, p.Source("queue"), p.Target("here"))


@dataclass
class Line:
    """A client's end of a connection that no socket has."""

    said: bytearray = field(default_factory=bytearray)
    ended: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        finish, cut = lambda: self.ended.append("closed"), lambda: self.ended.append("cut")
        self.wire = Wire(self.said.extend, finish, cut)
        self.connection = AmqpConnection(self.wire, DEVELOPMENT_KEY, IDLE, 0.0)

    def hears(self, data: bytes, now: float = 0.0) -> list[Event]:
        return list(self.connection.receive(data, now))

    def opened(self) -> "Line":
        self.hears(AMQP_HEADER + frame(0, p.Open("client", max_frame_size=65536)))
        assert self.said[:8] == AMQP_HEADER
        del self.said[:8]
        assert isinstance(self.answer(), p.Open)
        return self

    def answer(self) -> object:
        """The next performative that was said."""
        taken = take_frame(self.said, 0)
        assert taken is not None
        received, end = taken
        del self.said[:end]
        return decode_performative(received.body)[0]


def test_requests_come_out_in_order_however_their_bytes_arrive() -> None:
    line = Line().opened()
    begun = frame(1, p.Begin(None, 0, 10, 10)) + frame(1, ATTACH) + frame(1, ATTACH._replace(handle=1))

    events = [event for byte in begun for event in line.hears(bytes([byte]))]

    assert [event.attach.handle for event in events if isinstance(event, AttachAsked)] == [0, 1]
    assert isinstance(line.answer(), p.Begin)
    assert not line.said, "nobody has answered an attach yet"


def test_an_event_is_dealt_with_before_the_next_frame_is_looked_at() -> None:
    line = Line().opened()
    data = frame(0, p.Begin(None, 0, 10, 10)) + frame(0, ATTACH) + frame(0, ATTACH)

    events = line.connection.receive(data, 0.0)
    asked = next(events)
    assert isinstance(asked, AttachAsked)
    line.wire.abort()

    assert list(events) == [], "what was received and not looked at is never looked at"
    assert line.ended == ["cut"]


def test_a_mistake_is_raised_and_the_goodbye_says_it() -> None:
    line = Line().opened()

    with pytest.raises(AmqpError, match="No session has begun") as mistake:
        line.hears(frame(7, p.End()))
    line.connection.close(mistake.value)

    closed = line.answer()
    assert isinstance(closed, p.Close)
    error = read_as(p.ErrorField, closed.error)
    assert error is not None
    assert error.condition == "amqp:not-allowed"
    assert line.ended == ["closed"]


def test_times_decide_on_heartbeats_and_on_the_end_of_a_silent_client() -> None:
    line = Line().opened()
    assert line.connection.deadline == 0.0, "the first heartbeat is due at once"
    line.connection.wake(0.0)
    assert bytes(line.said) == EMPTY_FRAME
    assert line.connection.deadline == 4.0
    line.connection.wake(3.9)
    assert bytes(line.said) == EMPTY_FRAME
    line.hears(EMPTY_FRAME, now=50.0)
    line.connection.wake(IDLE + 1.0)
    assert line.ended == [], "it was heard since"

    line.connection.wake(50.0 + IDLE)

    assert line.ended == ["closed"]


def test_a_client_that_says_nothing_at_the_start_is_cut_off() -> None:
    line = Line()
    assert line.connection.deadline == 30.0
    line.connection.wake(30.0)
    assert line.ended == ["cut"]


def test_nothing_is_said_after_the_end() -> None:
    line = Line().opened()
    line.connection.close()
    said = bytes(line.said)
    line.connection.wake(1.0)
    line.connection.close()
    assert (bytes(line.said), line.ended) == (said, ["closed"])
