"""A link never sends what it has no credit for, and never takes more than it gave credit for.

Source: OASIS AMQP 1.0 part 2, 2.6.7. From the server's side an incoming link is a client's sender, an outgoing link a
client's receiver. The peer's handle number is used for our side of the link too.
"""

from typing import Protocol

from devstack.servicebus.amqp.channel import Channel
from devstack.servicebus.codec import performatives as p
from devstack.servicebus.codec.errors import MESSAGE_SIZE_EXCEEDED, TRANSFER_LIMIT_EXCEEDED, AmqpError

CREDIT = 1000
"""Messages that a sender may have under way; what Azure Service Bus gives."""


class Sink(Protocol):
    """Where a client's messages go."""

    max_message_bytes: int

    def receive(self, delivery_id: int, message_format: int, payload: bytes, *, settled: bool) -> None:
        """Take one whole message and, unless it is settled, answer it with a disposition sooner or later."""

    def closed(self) -> None:
        """The link is gone."""


class Source(Protocol):
    """Where the messages for a client come from."""

    def pump(self) -> None:
        """Send what may be sent."""

    def settle(self, delivery_id: int, tag: bytes, outcome: p.Outcome | None, *, settled: bool) -> None:
        """The client has ended a delivery."""

    def closed(self) -> None:
        """The link is gone."""


class IncomingLink:
    """Puts the frames of a message together, and keeps the sender in credit."""

    def __init__(self, channel: Channel, attach: p.Attach, path: str, sink: Sink) -> None:
        self._channel = channel
        self.handle = attach.handle
        self.name = attach.name
        self.path = path
        self.sink = sink
        self._delivery_count = attach.initial_delivery_count or 0
        self._credit = 0
        self._first: p.Transfer | None = None
        self._pieces: list[bytes] = []
        self._size = 0

    def open(self) -> None:
        self._grant()

    def close(self) -> None:
        self.sink.closed()

    def flow(self, flow: p.Flow) -> None:
        if flow.delivery_count is not None:
            self._delivery_count = flow.delivery_count
        if flow.echo:
            self._grant()

    def transfer(self, transfer: p.Transfer, payload: bytes) -> None:
        """One frame of a delivery. Raises :class:`AmqpError`, for which the link is detached."""
        first = self._first
        if first is None:
            if self._credit <= 0:
                raise AmqpError(TRANSFER_LIMIT_EXCEEDED, "The sender had no credit left.")
            if transfer.delivery_id is None or transfer.delivery_tag is None:
                raise AmqpError(
                    "amqp:invalid-field", "The first transfer of a delivery needs an id and a tag."
                )
            first = self._first = transfer
        if transfer.aborted:
            self._next_delivery()
            return
        self._size += len(payload)
        too_large = self._size > self.sink.max_message_bytes
        if not too_large:
            self._pieces.append(payload)
        if transfer.more:
            return
        whole = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._next_delivery()
        assert first.delivery_id is not None
        if too_large:
            self._channel.settle_incoming(first.delivery_id, p.Rejected(p.error_field(self._too_large())))
            return
        self.sink.receive(
            first.delivery_id,
            first.message_format or 0,
            whole,
            settled=bool(first.settled or transfer.settled),
        )

    def _too_large(self) -> AmqpError:
        limit = self.sink.max_message_bytes
        return AmqpError(
            MESSAGE_SIZE_EXCEEDED, f"The message is larger than the {limit} bytes that the link allows."
        )

    def _next_delivery(self) -> None:
        self._first, self._pieces, self._size = None, [], 0
        self._delivery_count = (self._delivery_count + 1) & 0xFFFFFFFF
        self._credit -= 1
        if self._credit <= CREDIT // 2:
            self._grant()

    def _grant(self) -> None:
        self._credit = CREDIT
        self._channel.send_flow(handle=self.handle, delivery_count=self._delivery_count, link_credit=CREDIT)


class OutgoingLink:
    """Counts credit, and numbers deliveries through its channel."""

    def __init__(self, channel: Channel, attach: p.Attach, path: str) -> None:
        self._channel = channel
        self.handle = attach.handle
        self.name = attach.name
        self.path = path
        self.source: Source | None = None
        self.pre_settled = attach.snd_settle_mode == 1
        self.credit = 0
        self.reserved = 0
        """Credit that deliveries will use which wait for a commit before they are sent."""

        self._delivery_count = 0
        self._drain = False

    @property
    def can_send(self) -> bool:
        return self.credit > 0 and self._channel.can_send

    @property
    def can_reserve(self) -> bool:
        """Whether there is credit for one more delivery that waits for a commit."""
        return self.reserved < self.credit and self._channel.can_send

    def open(self) -> None:
        """Nothing to say before the client gives credit."""

    def close(self) -> None:
        if self.source is not None:
            self.source.closed()

    def flow(self, flow: p.Flow) -> None:
        """Take the client's credit, and its wish to have it used up now: see :meth:`finish_drain`."""
        if flow.link_credit is not None:
            known = self._delivery_count if flow.delivery_count is None else flow.delivery_count
            self.credit = max(0, (known + flow.link_credit - self._delivery_count) & 0xFFFFFFFF)
            if self.credit > 0x7FFFFFFF:  # the client had not yet seen our last deliveries
                self.credit = 0
        self._drain = flow.drain
        if flow.echo and not flow.drain:
            self._send_flow()

    def finish_drain(self) -> bool:
        """All that could be sent was sent: the rest of the credit is used up. False: some of it still waits."""
        if not self._drain:
            return True
        if self.reserved:
            return False
        self._drain = False
        self._delivery_count = (self._delivery_count + self.credit) & 0xFFFFFFFF
        self.credit = 0
        self._send_flow(drain=True)
        return True

    def send(self, tag: bytes, payload: bytes) -> int:
        """Send one delivery; the caller has checked :attr:`can_send`. Returns its number in the session."""
        self.credit -= 1
        self._delivery_count = (self._delivery_count + 1) & 0xFFFFFFFF
        return self._channel.send_transfer(self.handle, tag, payload, settled=self.pre_settled)

    def forget(self, delivery: int) -> None:
        """Whatever the client makes of the delivery, nobody wants to know."""
        self._channel.unsettled.pop(delivery, None)

    def _send_flow(self, *, drain: bool = False) -> None:
        self._channel.send_flow(
            handle=self.handle, delivery_count=self._delivery_count, link_credit=self.credit, drain=drain
        )
