"""An order is paid in time, or cancelled by itself: nothing but its own state says when.

``placed`` -> ``reserved`` -> ``paid``; from the first two also ``cancelled``. Whatever comes later finds it closed.
"""

from datetime import datetime, timedelta
from typing import Annotated, ClassVar, Literal, Self
from uuid import UUID

from pydantic import Field

from cosmos_outbox import Aggregate, AggregateState, DomainEvent, Timestamp, WireModel, input_rule

PAY_WITHIN = timedelta(minutes=30)
OPEN = ("placed", "reserved")


class OrderClosed(Exception):
    """The order is paid or cancelled, and takes no change."""


def _some(pieces: int) -> int:
    if not 1 <= pieces <= 1000:
        raise ValueError("must be 1 to 1000")
    return pieces


class NewOrder(WireModel):
    """What a customer wants. ``amount``: in cents."""

    article_id: UUID
    quantity: Annotated[int, Field(strict=True), input_rule(_some)]
    amount: Annotated[int, Field(strict=True), input_rule(_some)]


class OrderState(NewOrder, AggregateState):
    """An order as it is stored."""

    id: UUID
    created_at: Timestamp
    pay_by: Timestamp
    status: Literal["placed", "reserved", "paid", "cancelled"] = "placed"
    reason: str | None = None
    """Why it was cancelled."""


class OrderEvent(DomainEvent):
    """Each event has all that the other two need."""

    order_id: UUID
    article_id: UUID
    quantity: int
    amount: int


class OrderReserved(OrderEvent):
    """The article has the pieces for it: it may be paid."""

    action: Literal["OrderReserved"] = "OrderReserved"


class OrderPaid(OrderEvent):
    """Its payment came in time."""

    action: Literal["OrderPaid"] = "OrderPaid"


class OrderCancelled(OrderEvent):
    """Nothing comes of it: what was done for it is taken back."""

    action: Literal["OrderCancelled"] = "OrderCancelled"
    reason: str


class Order(Aggregate[OrderState]):
    """A customer's order of one article."""

    aggregate_type: ClassVar[str] = "order"
    state_type: ClassVar[type[AggregateState]] = OrderState
    created_event, created_payload = "OrderPlaced", NewOrder

    @classmethod
    def place(
        cls,
        order: NewOrder,
        *,
        id: UUID,  # noqa: A002 - its id
        at: datetime,
        pay_within: timedelta = PAY_WITHIN,
    ) -> Self:
        """A new order, to be paid within a time."""
        state = OrderState(**dict(order), id=id, created_at=at, pay_by=at + pay_within)
        return cls(state, is_new=True)

    @property
    def aggregate_id(self) -> str:
        """The order's id."""
        return str(self.state.id)

    @property
    def due(self) -> datetime | None:
        """While it is open: when it has to be paid."""
        return self.state.pay_by if self.state.status in OPEN else None

    def on_due(self, *, at: datetime) -> None:
        """It was not paid."""
        self.cancel("not paid in time", at=at)

    def reserve(self, *, at: datetime) -> None:
        """The article has the pieces; nothing, if the order is cancelled by then."""
        if self.state.status == "placed":
            self._emit(OrderReserved, at, status="reserved")

    def pay(self, *, at: datetime) -> None:
        """The payment came; nothing, if the order is cancelled by then: the payment is then refunded."""
        if self.state.status == "reserved":
            self._emit(OrderPaid, at, status="paid")

    def cancel(self, reason: str, *, at: datetime) -> None:
        """Raises OrderClosed."""
        if self.state.status not in OPEN:
            raise OrderClosed(f"the order is {self.state.status}: it cannot be cancelled any more")
        self._emit(OrderCancelled, at, status="cancelled", reason=reason)

    def _emit(self, event: type[OrderEvent], at: datetime, *, status: str, **more: str) -> None:
        facts = {name: getattr(self.state, name) for name in NewOrder.model_fields}
        facts |= {"order_id": self.state.id, "created_at": at, **more}
        self._raise(lambda number: event.model_validate({**facts, "sequence": number}), status=status, **more)
