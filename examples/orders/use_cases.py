"""The use cases on orders; storing, repeating and racing are the outbox's part."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from cosmos_outbox import Aggregates, Origin, Page, Receipt, Versioned
from cosmos_outbox.http import KeyedRequest
from examples.orders.events import Line
from examples.orders.order import NewOrder, Order


@dataclass(frozen=True)
class Orders:
    """The order service. A call raises the errors of an order, and those of its aggregates.

    See :class:`cosmos_outbox.Aggregates`.
    """

    aggregates: Aggregates
    clock: Callable[[], datetime]

    async def place(self, order: NewOrder, origin: Origin) -> Receipt[Order]:
        """Store a new order."""
        return await self.aggregates.create(Order.place(order, at=self.clock()), origin)

    async def place_once(
        self, order: NewOrder, origin: Origin, request: KeyedRequest
    ) -> tuple[Receipt[Order], bool]:
        """As :meth:`place`, but a repetition with the same key gets the first answer; True: it did."""

        at = self.clock()

        def make(order_id: UUID) -> Order:
            return Order.place(order, at=at, order_id=order_id)

        return await self.aggregates.create_once(make, request, origin)

    async def read(self, order_id: UUID, origin: Origin, *, newest: bool = False) -> Versioned[Order]:
        """The order and its version; ``newest``: no older than this call."""
        return await self.aggregates.read(Order, str(order_id), origin, newest=newest)

    async def page(self, size: int, continuation_token: str | None, origin: Origin) -> Page[Order]:
        """A page of orders."""
        return await self.aggregates.page(Order, size, continuation_token, origin)

    async def add_line(
        self, order_id: UUID, line: Line, origin: Origin, *, if_match: Collection[str] = ()
    ) -> Receipt[Order]:
        """Add a line."""

        def add(order: Order) -> None:
            order.add_line(line, at=self.clock())

        return await self.aggregates.change(Order, str(order_id), add, origin, if_match=if_match)

    async def ship(self, order_id: UUID, origin: Origin, *, if_match: Collection[str] = ()) -> Receipt[Order]:
        """Ship the order."""

        def ship(order: Order) -> None:
            order.ship(at=self.clock())

        return await self.aggregates.change(Order, str(order_id), ship, origin, if_match=if_match)
