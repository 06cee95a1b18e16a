"""The service of ``examples/checkout``, with a letter for each order that comes to its end.

Each letter is written down before anything else happens, so that the judge knows what was asked for.
"""

import os

from cosmos_outbox import Event, Names, Service
from examples.checkout.order import OrderCancelled, OrderPaid
from examples.checkout.service import service as checkout

service = Service(
    "checkout",
    aggregates=checkout.aggregates,
    names=Names(database="checkout", container="checkout", topic="checkout-events"),
    events=checkout.events,
)
service.subscribers.extend(checkout.subscribers)


@service.effect("order-letters", of="order", on={OrderPaid, OrderCancelled})
async def write_letter(event: Event) -> None:
    """One line for each call."""
    letters = os.open(os.environ["LETTERS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(letters, f"{event.id}\n".encode())
    finally:
        os.close(letters)
