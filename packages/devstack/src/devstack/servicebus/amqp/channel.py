"""One channel numbers deliveries in both directions and keeps each side within the other's window.

Source: OASIS AMQP 1.0 part 2, 2.5. The channel knows handles; which link has one is its session's to know.
"""

from typing import Any

from devstack.servicebus.amqp.wire import Wire
from devstack.servicebus.codec import performatives as p
from devstack.servicebus.codec.errors import WINDOW_VIOLATION, AmqpError
from devstack.servicebus.codec.frames import frame, transfer_frames

WINDOW = 5000
"""Transfer frames that a client may have under way; what Azure Service Bus gives."""

_MASK = 0xFFFFFFFF


class Channel:
    """Our channel has the client's number."""

    def __init__(self, wire: Wire, number: int, begin: p.Begin) -> None:
        self.number = number
        self.unsettled: dict[int, tuple[int, bytes]] = {}
        """Deliveries to the client that it has not settled, by number: handle and tag."""

        self._wire = wire
        self._next_outgoing_id = 0
        self._next_delivery_id = 0
        self._next_incoming_id = begin.next_outgoing_id
        self._incoming_window = WINDOW
        self._remote_window = begin.incoming_window

    @property
    def can_send(self) -> bool:
        return self._remote_window > 0 and self._wire.is_writable

    def send(self, *performatives: Any) -> None:
        """One frame for each, in one piece."""
        self._wire.write(b"".join(frame(self.number, performative) for performative in performatives))

    def send_begin(self, handle_max: int) -> None:
        self.send(p.Begin(self.number, self._next_outgoing_id, WINDOW, WINDOW, handle_max))

    def send_flow(
        self,
        *,
        handle: int | None = None,
        delivery_count: int | None = None,
        link_credit: int | None = None,
        drain: bool = False,
    ) -> None:
        self.send(
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

    def send_transfer(self, handle: int, tag: bytes, payload: bytes, *, settled: bool) -> int:
        """Send a delivery; one that is not settled is remembered. Returns its number."""
        number = self._next_delivery_id
        frames = transfer_frames(
            self.number,
            handle,
            number,
            tag,
            payload,
            settled=settled,
            max_frame_size=self._wire.max_frame_size,
        )
        self._next_delivery_id = (number + 1) & _MASK
        self._next_outgoing_id = (self._next_outgoing_id + len(frames)) & _MASK
        self._remote_window -= len(frames)
        if not settled:
            self.unsettled[number] = (handle, tag)
        for encoded in frames:
            self._wire.write(encoded)
        return number

    def settle_incoming(self, delivery_id: int, outcome: p.Outcome) -> None:
        """Send the client the outcome of a message that it sent."""
        self.send(p.Disposition(True, delivery_id, settled=True, state=outcome))

    def settle_outgoing(self, delivery_id: int, outcome: p.Outcome) -> None:
        """Send the client the outcome of its settlement."""
        self.unsettled.pop(delivery_id, None)
        self.send(p.Disposition(False, delivery_id, settled=True, state=outcome))

    def forget(self, handle: int) -> None:
        """The link is gone: its deliveries cannot be settled any more."""
        for number in [number for number, (held, _) in self.unsettled.items() if held == handle]:
            del self.unsettled[number]

    def take_transfer(self) -> None:
        """Count a transfer of the client's. Raises :class:`AmqpError`."""
        if self._incoming_window <= 0:
            raise AmqpError(WINDOW_VIOLATION, "More transfers than the session's window allows.")
        self._next_incoming_id = (self._next_incoming_id + 1) & _MASK
        self._incoming_window -= 1
        if self._incoming_window <= WINDOW // 2:
            self._incoming_window = WINDOW
            self.send_flow()

    def take_flow(self, flow: p.Flow) -> None:
        """How much the client lets us send."""
        next_incoming = 0 if flow.next_incoming_id is None else flow.next_incoming_id
        under_way = (self._next_outgoing_id - next_incoming) & _MASK
        # The window itself may be as large as the numbers (.NET's is): it has no place in the arithmetic that wraps.
        self._remote_window = max(0, flow.incoming_window - under_way)
