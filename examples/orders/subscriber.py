"""A subscriber with an effect: the customer gets one e-mail when the order is shipped.

The e-mail cannot be part of a transaction, so the inbox runs it as an effect: in order, and again only when a process
died, or an answer was lost, between the e-mail and its record. The event's id is the e-mail's idempotency key, by which
the mail service knows such a repetition.
"""

from examples.orders.events import OrderShippedEvent
from examples.orders.mail import Mail
from examples.orders.order import Order
from inbox.effects import Effect
from inbox.event import Event
from inbox.reading import MessageReader

OF_SHIPPING = OrderShippedEvent.__name__

READER = MessageReader(Order.aggregate_type)
"""Of the topic, for both subscribers."""


def effect_of(mail: Mail) -> Effect:
    """The effect of an event: only one kind has any."""

    async def run(event: Event) -> None:
        if event.action == OF_SHIPPING:
            await mail.order_shipped(event.aggregate.id, idempotency_key=event.id)

    return run
