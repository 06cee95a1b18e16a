"""A payment is settled once, and only while its order wants it; what was settled for a cancelled order is refunded.

``requested`` -> ``settled`` or ``void``; ``settled`` -> ``refunded``.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar, Literal, Self
from uuid import UUID, uuid5

from cosmos_outbox import Aggregate, AggregateState, DomainEvent, Timestamp, WireModel

Status = Literal["requested", "settled", "void", "refunded"]


class PaymentClosed(Exception):
    """The payment was settled before, or its order was cancelled."""


class Request(WireModel):
    """What is to be paid, in cents, and for which order."""

    order_id: UUID
    amount: int


class PaymentState(Request, AggregateState):
    """A payment as it is stored."""

    id: UUID
    created_at: Timestamp
    status: Status = "requested"


class PaymentMoved(DomainEvent):
    """The payment has another status."""

    action: Literal["PaymentMoved"] = "PaymentMoved"
    payment_id: UUID
    order_id: UUID
    status: Status


class Payment(Aggregate[PaymentState]):
    """The payment of one order; the order's id gives the payment's."""

    aggregate_type: ClassVar[str] = "payment"
    state_type: ClassVar[type[AggregateState]] = PaymentState
    created_event, created_payload = "PaymentRequested", Request
    changed_events: ClassVar[Mapping[str, type[DomainEvent]]] = {"status": PaymentMoved}

    @classmethod
    def request(cls, request: Request, *, at: datetime) -> Self:
        """A new payment."""
        state = PaymentState(**dict(request), id=payment_of(request.order_id), created_at=at)
        return cls(state, is_new=True)

    @property
    def aggregate_id(self) -> str:
        """The payment's id."""
        return str(self.state.id)

    def settle(self, *, at: datetime) -> None:
        """The money is there: a provider of payments says so. Raises PaymentClosed."""
        if self.state.status != "requested":
            raise PaymentClosed(f"the payment is {self.state.status}: it cannot be settled")
        self._set("status", "settled", at)

    def take_back(self, *, at: datetime) -> None:
        """Its order was cancelled."""
        if self.state.status in ("requested", "settled"):
            self._set("status", "void" if self.state.status == "requested" else "refunded", at)


def payment_of(order_id: UUID) -> UUID:
    """The id of the payment of an order."""
    return uuid5(order_id, "payment")
