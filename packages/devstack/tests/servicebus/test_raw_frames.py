"""What a client may say on the wire, and what it gets: always an answer, never silence, never a crash."""

import asyncio
import random
import struct
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from devstack.servicebus.codec import encode as e
from devstack.servicebus.codec import performatives as p
from devstack.servicebus.codec.composites import read_as
from devstack.servicebus.codec.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, frame
from devstack.servicebus.codec.message import BATCH_FORMAT
from devstack.testing import Service, running
from devstack.testing.amqp import RawClient, batch, message, raw_client, raw_socket
from servicebus.support import new_queue, new_topic


@pytest.fixture
async def client(servicebus_server: Service) -> AsyncIterator[RawClient]:
    async with raw_client(servicebus_server.port) as connected:
        yield connected


@pytest.fixture
async def queue(servicebus_server: Service) -> AsyncIterator[str]:
    async with new_queue(servicebus_server) as name:
        yield name


@pytest.fixture(scope="module")
def impatient_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """It closes clients that are silent for two seconds, in which a busy machine lets a test say something."""
    folder: Path = tmp_path_factory.mktemp("impatient") / "data"
    with running(Service("servicebus", folder, "--idle-timeout=2")) as service:
        yield service


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n\r\n", b"AMQP\x00\x00\x09\x01"])
async def test_another_protocol_gets_the_header_we_speak_and_a_close(
    servicebus_server: Service, said: bytes
) -> None:
    async with raw_socket(servicebus_server.port) as client:
        client.writer.write(said)

        assert await client.header() == SASL_HEADER
        assert await client.closed() is None


async def test_a_client_may_leave_sasl_out_and_has_proved_nothing_then(
    servicebus_server: Service, queue: str
) -> None:
    """JavaScript's client does so when its connection string has a shared access signature in place of a key."""
    async with raw_socket(servicebus_server.port) as client:
        client.writer.write(AMQP_HEADER)
        assert await client.header() == AMQP_HEADER
        client.send(p.Open("raw", None, 65536))
        await client.expect(p.Open)
        await client.begin()

        with pytest.raises(AssertionError, match="unauthorized-access"):
            await client.attach_sender(queue)


@pytest.mark.parametrize(
    ("mechanism", "response", "code"),
    [
        ("ANONYMOUS", b"x", 0),
        ("MSSBCBS", None, 0),
        ("PLAIN", b"\0RootManageSharedAccessKey\0SAS_KEY_VALUE", 0),
        ("PLAIN", b"\0RootManageSharedAccessKey\0wrong", 1),
        ("PLAIN", b"", 1),
        ("EXTERNAL", None, 1),
    ],
)
async def test_sasl(servicebus_server: Service, mechanism: str, response: bytes | None, code: int) -> None:
    async with raw_socket(servicebus_server.port) as client:
        client.writer.write(SASL_HEADER)
        await client.header()
        offered = await client.expect(p.SaslMechanisms)

        client.writer.write(frame(0, p.SaslInit(mechanism, response), SASL_FRAME))

        assert set(offered.mechanisms) == {"MSSBCBS", "PLAIN", "ANONYMOUS"}
        assert (await client.expect(p.SaslOutcome)).code == code


@pytest.mark.parametrize(
    ("bytes_said", "condition"),
    [
        (struct.pack(">IBBH", 0x7FFFFFFF, 2, 0, 0), "amqp:connection:framing-error"),
        (struct.pack(">IBBH", 4, 2, 0, 0), "amqp:connection:framing-error"),
        (struct.pack(">IBBH", 8, 2, 9, 0), "amqp:connection:framing-error"),
        (struct.pack(">IBBH", 8, 2, 1, 0), "amqp:connection:framing-error"),
        (struct.pack(">IBBH", 12, 2, 0, 0) + b"\xff\xff\xff\xff", "amqp:decode-error"),
        (struct.pack(">IBBH", 12, 2, 0, 0) + b"\x00\x53\x99\x45", "amqp:decode-error"),
        (struct.pack(">IBBH", 14, 2, 0, 0) + b"\x00\x53\x14\xc0\xff\x01", "amqp:decode-error"),
        (struct.pack(">IBBH", 12, 2, 0, 0) + b"\x00\x53\x14\x45", "amqp:decode-error"),
        (struct.pack(">IBBH", 13, 2, 0, 7) + b"\x00\x53\x13\xc0\x01", "amqp:decode-error"),
    ],
)
async def test_a_malformed_frame_closes_the_connection_with_the_reason(
    client: RawClient, bytes_said: bytes, condition: str
) -> None:
    client.writer.write(bytes_said)

    error = await client.closed()

    assert error is not None
    assert error.condition == condition


async def test_random_bytes_close_the_connection_and_leave_the_server_well(
    servicebus_server: Service, queue: str
) -> None:
    chance = random.Random(4711)
    for _ in range(40):
        async with raw_client(servicebus_server.port) as client:
            body = chance.randbytes(chance.randint(1, 60))
            if chance.random() < 0.7:
                body = (
                    b"\x00\x53" + bytes((chance.choice([0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17]),)) + body
                )
            client.writer.write(struct.pack(">IBBH", 8 + len(body), 2, 0, 0) + body)
            client.send(p.Close())
            await client.closed()

    async with raw_client(servicebus_server.port) as client:
        handle = await client.attach_sender(queue)
        assert await client.deliver(handle, message()) == p.Accepted()


async def test_a_malformed_message_closes_the_connection(client: RawClient, queue: str) -> None:
    handle = await client.attach_sender(queue)

    client.transfer(handle, b"\x00\x53\x75\xa0\xff")

    error = await client.closed()
    assert error is not None
    assert error.condition == "amqp:decode-error"


async def test_frames_of_an_unknown_channel_handle_or_order_are_refused(servicebus_server: Service) -> None:
    async with raw_client(servicebus_server.port) as client:
        client.send(p.Flow(0, 1, 0, 1), channel=9)
        error = await client.closed()
        assert error is not None
        assert error.condition == "amqp:not-allowed"
    async with raw_client(servicebus_server.port) as client:
        client.transfer(5, message())
        end = await client.expect(p.End)
        ended = read_as(p.ErrorField, end.error)
        assert ended is not None
        assert ended.condition == "amqp:session:unattached-handle"
        client.send(p.End())
        await client.begin()


async def test_a_refused_link_is_attached_without_a_terminus_then_detached(
    client: RawClient, servicebus_server: Service
) -> None:
    async with new_topic(servicebus_server) as topic:
        for attempt, condition in (("no-such-queue", "amqp:not-found"), (topic, "amqp:not-allowed")):
            answer = await client.attach_receiver(attempt)
            detach = await client.expect(p.Detach)
            error = read_as(p.ErrorField, detach.error)
            assert answer.source is None
            assert error is not None
            assert error.condition == condition


async def test_a_client_hears_from_us_as_often_as_it_asks(servicebus_server: Service) -> None:
    async with raw_client(servicebus_server.port, idle_timeout=200) as client:
        with pytest.raises(TimeoutError):
            await client.expect(p.Close, patience=2)

        assert client.heartbeats >= 5  # of twenty, on a machine that has nothing else to do


async def test_a_silent_client_is_closed(impatient_server: Service) -> None:
    async with raw_client(impatient_server.port) as client:
        error = await client.closed()

    assert error is not None
    assert error.condition == "amqp:connection:forced"


async def test_a_client_that_sends_heartbeats_is_kept(impatient_server: Service) -> None:
    async with raw_client(impatient_server.port) as client:
        for _ in range(12):
            client.writer.write(struct.pack(">IBBH", 8, 2, 0, 0))
            await asyncio.sleep(0.2)  # what is tested is time itself
        client.send(p.Close())
        assert await client.closed() is None


async def test_credit_is_never_exceeded_and_drain_uses_it_up(client: RawClient, queue: str) -> None:
    sender = await client.attach_sender(queue)
    for number in range(5):
        await client.deliver(sender, message(b"%d" % number))
    receiver = (await client.attach_receiver(queue)).handle

    client.credit(receiver, 2)
    got = [await client.receive(), await client.receive()]
    assert await client.nothing_arrives()
    client.credit(receiver, 10, delivery_count=2, drain=True)
    got += [await client.receive() for _ in range(3)]
    flow = await client.expect(p.Flow)

    assert [delivery.body for delivery in got] == [b"0", b"1", b"2", b"3", b"4"]
    assert (flow.handle, flow.link_credit, flow.delivery_count, flow.drain) == (receiver, 0, 12, True)
    await client.deliver(sender, message(b"after"))
    assert await client.nothing_arrives()


async def test_the_session_window_holds_deliveries_back(servicebus_server: Service, queue: str) -> None:
    async with raw_client(servicebus_server.port) as client:
        sender = await client.attach_sender(queue)
        for number in range(4):
            await client.deliver(sender, message(b"%d" % number))
        receiver = (await client.attach_receiver(queue)).handle
        client.send(p.Flow(0, 2, 0, 5000, receiver, 0, 10))

        first = [await client.receive(), await client.receive()]
        assert await client.nothing_arrives()
        client.send(p.Flow(2, 5, 0, 5000))

        rest = [await client.receive(), await client.receive()]
        assert [delivery.body for delivery in first + rest] == [b"0", b"1", b"2", b"3"]


async def test_a_window_as_large_as_the_numbers_is_open(client: RawClient, queue: str) -> None:
    """.NET's receivers give it, in ``begin`` and in each ``flow``, and never another."""
    sender = await client.attach_sender(queue)
    for number in range(3):
        await client.deliver(sender, message(b"%d" % number))
    receiver = (await client.attach_receiver(queue)).handle
    client.send(p.Flow(0, 0xFFFFFFFF, 0, 5000, receiver, 0, 2))
    got = [await client.receive(), await client.receive()]
    # As if the client had not counted the second delivery when it sent this.
    client.send(p.Flow(1, 0xFFFFFFFF, 0, 5000, receiver, 2, 2))
    got.append(await client.receive())
    assert [delivery.body for delivery in got] == [b"0", b"1", b"2"]


async def test_large_messages_travel_in_several_frames_both_ways(client: RawClient, queue: str) -> None:
    sender = await client.attach_sender(queue)
    body = bytes(range(256)) * 900  # 230 400 bytes

    assert await client.deliver(sender, message(body)) == p.Accepted()
    receiver = (await client.attach_receiver(queue)).handle
    client.credit(receiver, 1)
    delivery = await client.receive()

    assert delivery.body == body
    assert delivery.frames > 3


async def test_small_frames_are_honoured(servicebus_server: Service, queue: str) -> None:
    async with raw_client(servicebus_server.port, max_frame_size=512) as client:
        sender = await client.attach_sender(queue)
        await client.deliver(sender, message(b"x" * 2000))
        receiver = (await client.attach_receiver(queue)).handle
        client.credit(receiver, 1)

        delivery = await client.receive()

        assert delivery.body == b"x" * 2000
        assert delivery.frames >= 5


async def test_a_message_above_the_limit_is_rejected_and_the_link_lives(
    client: RawClient, queue: str
) -> None:
    sender = await client.attach_sender(queue)

    outcome = await client.deliver(sender, message(b"x" * 262_144))

    assert isinstance(outcome, p.Rejected)
    assert outcome.error is not None
    assert outcome.error.condition == "amqp:link:message-size-exceeded"
    assert await client.deliver(sender, message()) == p.Accepted()


async def test_an_aborted_delivery_leaves_nothing(client: RawClient, queue: str) -> None:
    sender = await client.attach_sender(queue)
    client.send(p.Transfer(sender, 0, b"t", 0, False, True), message()[:10])
    client.send(p.Transfer(sender, 0, b"t", 0, False, False, aborted=True))
    client._delivery = 0

    assert await client.deliver(sender, message(b"whole")) == p.Accepted()
    receiver = (await client.attach_receiver(queue)).handle
    client.credit(receiver, 5)

    assert (await client.receive()).body == b"whole"
    assert await client.nothing_arrives()


async def test_a_batch_is_several_messages_and_one_outcome(client: RawClient, queue: str) -> None:
    sender = await client.attach_sender(queue)

    outcome = await client.deliver(sender, batch(message(b"1"), message(b"2")), message_format=BATCH_FORMAT)
    receiver = (await client.attach_receiver(queue)).handle
    client.credit(receiver, 5)

    assert outcome == p.Accepted()
    assert [(await client.receive()).body for _ in range(2)] == [b"1", b"2"]
    refused = await client.deliver(sender, message(), message_format=7)
    assert isinstance(refused, p.Rejected)


async def test_a_settled_send_gets_no_answer_and_arrives(client: RawClient, queue: str) -> None:
    sender = await client.attach_sender(queue)
    client.transfer(sender, message(b"settled"), settled=True)

    receiver = (await client.attach_receiver(queue)).handle
    client.credit(receiver, 1)

    assert (await client.receive()).body == b"settled"
    assert not [kept for kept in client.backlog if isinstance(kept[0], p.Disposition)]


async def test_several_messages_are_settled_by_one_disposition(client: RawClient, queue: str) -> None:
    sender = await client.attach_sender(queue)
    for _ in range(4):
        await client.deliver(sender, message())
    receiver = (await client.attach_receiver(queue)).handle
    client.credit(receiver, 4)
    numbers = [(await client.receive()).number for _ in range(4)]

    client.send(p.Disposition(True, numbers[0], numbers[-1], settled=False, state=p.Accepted()))

    settled = [await client.expect(p.Disposition) for _ in range(4)]
    assert [d.first for d in settled] == numbers


async def test_a_transaction_is_refused(client: RawClient) -> None:
    coordinator = e.described(0x30, e.encode_list([]))
    fields = [e.string("tx"), e.uint(7), e.boolean(False), b"\x40", b"\x40", b"\x40", coordinator]
    body = e.described(0x12, e.encode_list(fields))
    client.writer.write(struct.pack(">IBBH", 8 + len(body), 2, 0, 0) + body)

    detach = await client.expect(p.Detach)

    error = read_as(p.ErrorField, detach.error)
    assert error is not None
    assert error.condition == "amqp:not-implemented"
