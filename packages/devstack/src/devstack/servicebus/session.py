"""An AMQP session numbers deliveries in both directions and keeps each side within the other's window.

Source: OASIS AMQP 1.0 part 2, 2.5 and 2.7.
"""

from typing import TYPE_CHECKING, Any

from devstack.servicebus.codec import performatives as p
from devstack.servicebus.codec.composites import read_outcome
from devstack.servicebus.codec.errors import (
    DECODE_ERROR,
    HANDLE_IN_USE,
    UNATTACHED_HANDLE,
    WINDOW_VIOLATION,
    AmqpError,
)
from devstack.servicebus.codec.frames import frame, transfer_frames
from devstack.servicebus.link import IncomingLink, OutgoingLink

if TYPE_CHECKING:
    from devstack.servicebus.connection import Connection
    from devstack.servicebus.engine import Engine

WINDOW = 5000
"""Transfer frames that a client may have under way; what Azure Service Bus gives."""

MAX_HANDLE = 255
_MASK = 0xFFFFFFFF

Link = IncomingLink | OutgoingLink


class AmqpSession:
    """One channel of a connection; our channel has the client's number."""

    def __init__(self, connection: "Connection", channel: int, begin: p.Begin) -> None:
        self.connection = connection
        self.channel = channel
        self.links: dict[int, Link] = {}
        self.unsettled: dict[int, tuple[OutgoingLink, bytes]] = {}
        """Deliveries to the client that it has not settled, by number, with their tags."""

        self._next_outgoing_id = 0
        self._next_delivery_id = 0
        self._next_incoming_id = begin.next_outgoing_id
        self._incoming_window = WINDOW
        self._remote_window = begin.incoming_window
        self._detached: set[int] = set()

    @property
    def engine(self) -> "Engine":
        return self.connection.engine

    @property
    def can_send(self) -> bool:
        return self._remote_window > 0 and self.connection.writable

    def open(self) -> None:
        self._send(p.Begin(self.channel, self._next_outgoing_id, WINDOW, WINDOW, MAX_HANDLE))

    def close(self) -> None:
        """Every link of the session is gone."""
        links, self.links = self.links, {}
        self.unsettled.clear()
        for link in links.values():
            link.close()

    def pump(self) -> None:
        """The connection can be written to again."""
        for link in list(self.links.values()):
            if isinstance(link, OutgoingLink) and link.source is not None:
                self.engine.wake(link.source)

    # -- incoming

    def handle(self, performative: Any, payload: bytes) -> None:
        """One frame of this channel. Raises :class:`AmqpError`, for which the session is ended."""
        if isinstance(performative, p.Transfer):
            self._on_transfer(performative, payload)
        elif isinstance(performative, p.Disposition):
            self._on_disposition(performative)
        elif isinstance(performative, p.Flow):
            self._on_flow(performative)
        elif isinstance(performative, p.Attach):
            self._on_attach(performative)
        elif isinstance(performative, p.Detach):
            self._on_detach(performative)
        else:
            raise AmqpError("amqp:illegal-state", "This performative has no place in an open session.")

    def _on_attach(self, attach: p.Attach) -> None:
        if attach.handle > MAX_HANDLE or attach.handle in self.links:
            raise AmqpError(HANDLE_IN_USE, f"The handle {attach.handle} is in use, or above {MAX_HANDLE}.")
        self._detached.discard(attach.handle)
        self.connection.attach(self, attach)

    def _on_transfer(self, transfer: p.Transfer, payload: bytes) -> None:
        if self._incoming_window <= 0:
            raise AmqpError(WINDOW_VIOLATION, "More transfers than the session's window allows.")
        self._next_incoming_id = (self._next_incoming_id + 1) & _MASK
        self._incoming_window -= 1
        if self._incoming_window <= WINDOW // 2:
            self._incoming_window = WINDOW
            self.send_flow()
        link = self.links.get(transfer.handle)
        if link is None and transfer.handle in self._detached:
            return  # sent before our detach arrived
        if not isinstance(link, IncomingLink):
            raise AmqpError(UNATTACHED_HANDLE, f"The handle {transfer.handle} is not a sender's.")
        try:
            link.transfer(transfer, payload)
        except AmqpError as error:
            if error.condition == DECODE_ERROR:
                raise  # the connection is of no use: nobody knows what its bytes mean
            self.detach(link, error)

    def _on_disposition(self, disposition: p.Disposition) -> None:
        if not disposition.role:
            return  # the client settles what it sent; it was settled here when it was answered
        last = disposition.first if disposition.last is None else disposition.last
        outcome = read_outcome(disposition.state)
        if disposition.first == last:
            numbers = [last] if last in self.unsettled else []
        else:
            numbers = [number for number in self.unsettled if disposition.first <= number <= last]
        for number in numbers:
            link, tag = self.unsettled[number]
            if link.source is not None:
                link.source.settle(number, tag, outcome, settled=disposition.settled)
            if disposition.settled:
                self.unsettled.pop(number, None)

    def _on_flow(self, flow: p.Flow) -> None:
        next_incoming = 0 if flow.next_incoming_id is None else flow.next_incoming_id
        under_way = (self._next_outgoing_id - next_incoming) & _MASK
        # The window itself may be as large as the numbers (.NET's is): it has no place in the arithmetic that wraps.
        self._remote_window = max(0, flow.incoming_window - under_way)
        if flow.handle is not None:
            link = self.links.get(flow.handle)
            if link is None and flow.handle not in self._detached:
                raise AmqpError(UNATTACHED_HANDLE, f"The handle {flow.handle} is not attached.")
            if link is not None:
                link.flow(flow)
            return
        if flow.echo:
            self.send_flow()
        self.pump()

    def _on_detach(self, detach: p.Detach) -> None:
        link = self.links.get(detach.handle)
        if link is None:
            if detach.handle not in self._detached:
                raise AmqpError(UNATTACHED_HANDLE, f"The handle {detach.handle} is not attached.")
            self._detached.discard(detach.handle)
            return
        self._drop(link)
        self._send(p.Detach(detach.handle, closed=True))

    # -- outgoing

    def accept_attach(self, attach: p.Attach, link: Link, answer: p.Attach) -> None:
        """Answer an attach and let the link work."""
        self.links[attach.handle] = link
        self._send(answer)
        link.open()

    def refuse_attach(self, attach: p.Attach, error: AmqpError) -> None:
        """An attach without a terminus, and a detach that says why (OASIS AMQP 1.0 part 2, 2.6.3)."""
        answer = attach._replace(
            role=not attach.role,
            source=None,
            target=None,
            unsettled=None,
            initial_delivery_count=0 if attach.role else None,
            properties=None,
            offered_capabilities=None,
            desired_capabilities=None,
        )
        self._detached.add(attach.handle)
        self.connection.write(
            frame(self.channel, answer)
            + frame(self.channel, p.Detach(attach.handle, closed=True, error=p.error_field(error)))
        )

    def detach(self, link: Link, error: AmqpError) -> None:
        """Close a link from our side."""
        if self.links.get(link.handle) is not link:
            return
        self._drop(link)
        self._detached.add(link.handle)
        self._send(p.Detach(link.handle, closed=True, error=p.error_field(error)))

    def end(self, error: AmqpError) -> None:
        self.close()
        self._send(p.End(p.error_field(error)))

    def send_flow(
        self,
        *,
        handle: int | None = None,
        delivery_count: int | None = None,
        link_credit: int | None = None,
        drain: bool = False,
    ) -> None:
        self._send(
            p.Flow(
                next_incoming_id=self._next_incoming_id,
                incoming_window=self._incoming_window,
                next_outgoing_id=self._next_outgoing_id,
                outgoing_window=WINDOW,
                handle=handle,
                delivery_count=delivery_count,
                link_credit=link_credit,
                drain=drain,
            )
        )

    def send_transfer(self, link: OutgoingLink, tag: bytes, payload: bytes) -> int:
        """Send a delivery; one that is not settled is remembered. Returns its number."""
        number = self._next_delivery_id
        frames = transfer_frames(
            self.channel,
            link.handle,
            number,
            tag,
            payload,
            settled=link.pre_settled,
            max_frame_size=self.connection.remote_max_frame_size,
        )
        self._next_delivery_id = (number + 1) & _MASK
        self._next_outgoing_id = (self._next_outgoing_id + len(frames)) & _MASK
        self._remote_window -= len(frames)
        if not link.pre_settled:
            self.unsettled[number] = (link, tag)
        for encoded in frames:
            self.connection.write(encoded)
        return number

    def settle_incoming(self, delivery_id: int, outcome: p.Outcome) -> None:
        """Tell the client what became of a message that it sent."""
        self._send(p.Disposition(True, delivery_id, settled=True, state=outcome))

    def settle_outgoing(self, delivery_id: int, outcome: p.Outcome) -> None:
        """Tell the client what became of its settlement."""
        self.unsettled.pop(delivery_id, None)
        self._send(p.Disposition(False, delivery_id, settled=True, state=outcome))

    def _drop(self, link: Link) -> None:
        del self.links[link.handle]
        for number in [number for number, (owner, _) in self.unsettled.items() if owner is link]:
            del self.unsettled[number]
        link.close()

    def _send(self, performative: Any) -> None:
        self.connection.write(frame(self.channel, performative))


def rejected(error: AmqpError) -> p.Rejected:
    """The outcome for a message or settlement that is refused."""
    return p.Rejected(p.error_field(error))
