"""An AMQP client that says exactly what a test wants said, also what no SDK would say."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, TypeVar

from devstack.servicebus.codec import encode as e
from devstack.servicebus.codec import performatives as p
from devstack.servicebus.codec.composites import (
    decode_performative,
    encode_performative,
    read_as,
    read_outcome,
)
from devstack.servicebus.codec.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, frame, take_frame
from devstack.servicebus.codec.message import ParsedMessage, parse, read_application_properties, read_value
from devstack.servicebus.codec.values import Raw, Symbol

PATIENCE_SECONDS = 10.0
KEY_NAME, KEY = "RootManageSharedAccessKey", "SAS_KEY_VALUE"

T = TypeVar("T")


@dataclass(frozen=True)
class Delivery:
    """One message as it arrived."""

    number: int
    tag: bytes
    message: ParsedMessage
    frames: int

    @property
    def body(self) -> bytes:
        """The data section's content."""
        raw = self.message.raw[self.message.body_start :]
        assert raw[:3] == b"\x00\x53\x75"
        return raw[5:] if raw[3] == 0xA0 else raw[8:]


def message(body: bytes = b"x", *, message_id: str | None = None, session_id: str | None = None) -> bytes:
    """An encoded message with one data section."""
    fields = [b"\x40"] * 11
    if message_id is not None:
        fields[0] = e.string(message_id)
    if session_id is not None:
        fields[10] = e.string(session_id)
    return e.described(0x73, e.encode_list(fields)) + e.described(0x75, e.binary(body))


def batch(*messages: bytes) -> bytes:
    return b"".join(e.described(0x75, e.binary(raw)) for raw in messages)


class RawClient:
    """One connection; what is said belongs to the session that began last."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.channel = 0
        self.backlog: list[Any] = []
        self.heartbeats = 0
        self._reader = reader
        self._buffer = bytearray()
        self._payloads: dict[int, bytes] = {}
        self._handle = -1
        self._delivery = -1
        self._response_handle: dict[str, int] = {}

    # -- bytes

    async def header(self) -> bytes:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(self._buffer) < 8:
                await self._fill()
        header = bytes(self._buffer[:8])
        del self._buffer[:8]
        return header

    def send(self, performative: Any, payload: bytes = b"", *, channel: int | None = None) -> None:
        """One frame, of the present session unless a channel is given."""
        channel = self.channel if channel is None else channel
        body = encode_performative(performative) + payload
        self.writer.write(
            (8 + len(body)).to_bytes(4, "big") + b"\x02\x00" + channel.to_bytes(2, "big") + body
        )

    async def read(self) -> tuple[Any, bytes]:
        """The next performative and its payload. Raises EOFError when the server has closed."""
        while True:
            taken = take_frame(self._buffer, 0)
            if taken is None:
                await self._fill()
                continue
            received, end = taken
            del self._buffer[:end]
            if not received.body:
                self.heartbeats += 1
                continue
            performative, payload_at = decode_performative(received.body)
            return performative, received.body[payload_at:]

    async def expect(self, kind: type[T], *, patience: float = PATIENCE_SECONDS) -> T:
        """The next performative of this kind; others are kept for later."""
        for index, kept in enumerate(self.backlog):
            if isinstance(kept[0], kind):
                found, payload = self.backlog.pop(index)
                self._payloads[id(found)] = payload
                return found  # type: ignore[no-any-return] # the backlog holds performatives of every kind
        async with asyncio.timeout(patience):
            while True:
                performative, payload = await self.read()
                if isinstance(performative, kind):
                    self._payloads[id(performative)] = payload
                    return performative
                self.backlog.append((performative, payload))

    async def closed(self) -> p.ErrorField | None:
        """Wait until the server closes; the error it gave."""
        error: p.ErrorField | None = None
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                try:
                    performative, _ = await self.read()
                except (EOFError, ConnectionError):
                    return error
                if isinstance(performative, p.Close):
                    error = read_as(p.ErrorField, performative.error)

    async def _fill(self) -> None:
        data = await self._reader.read(65536)
        if not data:
            raise EOFError
        self._buffer += data

    # -- what a well-behaved client says

    async def handshake(self, **open_fields: Any) -> None:
        self.writer.write(SASL_HEADER)
        assert await self.header() == SASL_HEADER
        secret = f"\0{KEY_NAME}\0{KEY}".encode()
        self.writer.write(frame(0, p.SaslInit("PLAIN", secret), SASL_FRAME))
        assert (await self.expect(p.SaslOutcome)).code == 0
        self.writer.write(AMQP_HEADER)
        assert await self.header() == AMQP_HEADER
        self.send(p.Open(**{"container_id": "raw", "max_frame_size": 65536, **open_fields}))
        await self.expect(p.Open)

    async def begin(self, *, incoming_window: int = 5000, channel: int = 0) -> None:
        """Begin a session; deliveries are numbered from 0 in each."""
        self.channel, self._delivery = channel, -1
        self.send(p.Begin(None, 0, incoming_window, 5000))
        await self.expect(p.Begin)

    async def attach_sender(self, address: str) -> int:
        """The handle of a sender that has credit. Raises AssertionError with the error when it is refused."""
        self._handle += 1
        target = p.Target(address)
        self.send(
            p.Attach(f"s{uuid.uuid4()}", self._handle, False, 2, 0, p.Source("here"), target, None, False, 0)
        )
        answer = await self.expect(p.Attach)
        if answer.target is None:
            detach = await self.expect(p.Detach)
            raise AssertionError(read_as(p.ErrorField, detach.error))
        await self.expect(p.Flow)
        return self._handle

    async def attach_receiver(
        self,
        address: str,
        *,
        session: str | bool | None = False,
        deletes: bool = False,
        properties: Any = None,
    ) -> p.Attach:
        """The server's half of a receiver's attach; ``session`` None asks for any, False for none."""
        self._handle += 1
        filters = None if session is False else {Symbol("com.microsoft:session-filter"): session}
        source = p.Source(address, filter=filters)
        mode = 1 if deletes else 0
        self.send(
            p.Attach(
                f"r{uuid.uuid4()}",
                self._handle,
                True,
                mode,
                1,
                source,
                p.Target("here"),
                properties=properties,
            )
        )
        return await self.expect(p.Attach)

    def credit(self, handle: int, credit: int, *, delivery_count: int = 0, drain: bool = False) -> None:
        self.send(p.Flow(0, 5000, 0, 5000, handle, delivery_count, credit, None, drain))

    def transfer(self, handle: int, payload: bytes, *, message_format: int = 0, settled: bool = False) -> int:
        """Send a message in as many frames as it takes; the delivery's number."""
        self._delivery += 1
        first = p.Transfer(handle, self._delivery, self._delivery.to_bytes(4, "big"), message_format, settled)
        pieces = [payload[at : at + 60_000] for at in range(0, len(payload), 60_000)] or [b""]
        for piece in pieces[:-1]:
            self.send(first._replace(more=True), piece)
        self.send(first, pieces[-1])
        return self._delivery

    async def deliver(self, handle: int, payload: bytes, *, message_format: int = 0) -> Any:
        """Send a message and give its outcome."""
        self.transfer(handle, payload, message_format=message_format)
        disposition = await self.expect(p.Disposition)
        assert disposition.settled
        return read_outcome(disposition.state)

    async def receive(self, *, patience: float = PATIENCE_SECONDS) -> Delivery:
        """The next message, put together from its frames."""
        pieces: list[bytes] = []
        first: p.Transfer | None = None
        while True:
            transfer = await self.expect(p.Transfer, patience=patience)
            first = first or transfer
            pieces.append(self._payloads.pop(id(transfer)))
            if not transfer.more:
                break
        assert first.delivery_id is not None
        assert first.delivery_tag is not None
        return Delivery(first.delivery_id, first.delivery_tag, parse(b"".join(pieces)), len(pieces))

    async def settle(self, delivery: Delivery, outcome: Any) -> Any:
        """Settle as azure-servicebus does, and give what the server answers."""
        self.send(p.Disposition(True, delivery.number, settled=False, state=outcome))
        disposition = await self.expect(p.Disposition)
        assert disposition.first == delivery.number
        assert disposition.settled
        return read_outcome(disposition.state)

    async def nothing_arrives(self, *, within: float = 0.2) -> bool:
        """Whether no message comes in this time."""
        try:
            await self.receive(patience=within)
        except TimeoutError:
            return True
        return False

    async def request(
        self, node: str, operation: str, body: Any, **properties: Any
    ) -> tuple[int, Any, str | None]:
        """Ask ``node``; status, body and error condition of the answer."""
        if node not in self._response_handle:
            await self.attach_receiver(node)
            self.credit(self._handle, 100)
            self._response_handle[node] = await self.attach_sender(node)
        sections = e.described(0x73, e.encode_list([e.encode(uuid.uuid4())]))
        sections += e.described(0x74, e.encode({"operation": operation, **properties}))
        sections += e.described(0x77, body.encoded if isinstance(body, Raw) else e.encode(body))
        self.transfer(self._response_handle[node], sections)
        answer = await self.receive()
        said = read_application_properties(answer.message)
        status = said.get("statusCode", said.get("status-code"))
        assert isinstance(status, int)
        return status, read_value(answer.message), said.get("errorCondition")


@contextlib.asynccontextmanager
async def raw_socket(port: int) -> AsyncIterator[RawClient]:
    """A connected socket on which nothing was said."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield RawClient(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def raw_client(port: int, **open_fields: Any) -> AsyncIterator[RawClient]:
    """An open connection with a session."""
    async with raw_socket(port) as client:
        await client.handshake(**open_fields)
        await client.begin()
        yield client
