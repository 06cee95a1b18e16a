"""A subscriber with an effect: the customer gets one e-mail when the order is shipped.

The e-mail cannot be part of a transaction, so the inbox runs it as an effect: in order, and again only when a process
died, or an answer was lost, between the e-mail and its record. The event's id is the e-mail's idempotency key, by which
the mail service knows such a repetition.
"""

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field, ValidationError
from pydantic_core import from_json

from examples.orders.events import OrderShippedEvent
from examples.orders.mail import Mail
from examples.orders.order import Order
from inbox.effects import Effect
from inbox.errors import Unreadable
from inbox.event import AggregateKey, Event
from inbox.set_aside import Delivery
from outbox.event import WireModel

OF_SHIPPING = OrderShippedEvent.__name__


_Id = Annotated[str, Field(pattern=r"^[^/\\?#]{1,128}$")]
"""What can be the id of an item in the store: of any other the store says that it is away, or worse."""


class _Envelope(WireModel):
    """What every event of an order has, and the notice of a discarded one."""

    id: UUID
    action: str
    sequence: int | None = Field(default=None, ge=1)
    created_at: datetime
    order_id: _Id | None = None
    aggregate_id: _Id | None = None
    """In a notice."""

    @property
    def owner(self) -> str:
        """The order's id. Raises ValueError: no order has sent this."""
        owner = self.order_id or self.aggregate_id
        if owner is None:
            raise ValueError("the event names no order")
        return owner


def read(delivery: Delivery) -> Event | None:
    """The event in a message; None: it is of another aggregate. Raises Unreadable."""
    if delivery.properties.get("aggregateType") != Order.aggregate_type:
        return None
    try:
        data: dict[str, Any] = from_json(delivery.body)
        envelope = _Envelope.model_validate(data)
        key = AggregateKey(Order.aggregate_type, envelope.owner)
    except (ValidationError, ValueError):
        raise Unreadable("the message is no event of an order") from None
    return Event(str(envelope.id), key, envelope.action, envelope.sequence, envelope.created_at, data)


def effect_of(mail: Mail) -> Effect:
    """The effect of an event: only one kind has any."""

    async def run(event: Event) -> None:
        if event.action == OF_SHIPPING:
            await mail.order_shipped(event.aggregate.id, idempotency_key=event.id)

    return run
