"""The composition root of the order service: the use cases over an outbox, the board and the e-mails over an inbox."""

from collections.abc import Sequence
from dataclasses import dataclass

from examples.orders.board import FORM, Board, BoardEntry, entry_of, project
from examples.orders.mail import LoggedMail
from examples.orders.order import Order
from examples.orders.service import Orders
from examples.orders.subscriber import READER, effect_of
from inbox.sweep import Sweep
from infra.effects import EffectSubscriber, wire_effects
from infra.http.caller import Callers
from infra.read_model import Queried, ReadModel, ReadModelOf, wire_read_model
from infra.settings import Settings
from infra.subscriber import Subscriber, Subscription, wire_subscriber
from infra.wire_names import WireNames
from infra.wiring import OnePerProcess, Outbox, wire_outbox
from outbox.aggregates import Aggregates
from outbox.unit_of_work import utc_now

BOARD_SUBSCRIPTION = "order-board"
"""Each subscriber has a subscription of its own; that of the e-mails is in the settings."""


NAMES = WireNames(source="/orders")


@dataclass(frozen=True)
class Application:
    """The order service."""

    orders: Orders
    outbox: Outbox
    callers: Callers
    mails: EffectSubscriber
    subscriber: Subscriber
    """Of the board."""
    board: Board
    read_model: ReadModel[BoardEntry]
    """What keeps the board, from events and from the orders."""

    @property
    def sweep(self) -> Sweep[BoardEntry]:
        """What finds the changes of which no event came."""
        return self.read_model.sweep

    @property
    def subscriptions(self) -> Sequence[Subscription]:
        """What the subscriber worker serves."""
        return [Subscription(self.subscriber, sweep=self.sweep), self.mails.subscription]


def queried() -> Queried:
    """By what the order service finds its documents: preflight looks whether it is indexed."""
    return Queried(NAMES, FORM)


def wire(settings: Settings) -> Application:
    """Build the order service from settings. Opens no connection: the first use opens it."""
    outbox = wire_outbox(settings, NAMES)
    aggregates = Aggregates(outbox.open_unit_of_work, outbox.claims, settings.idempotency_old_records)
    of_orders = ReadModelOf(
        settings.cosmos_directory_container, Order.aggregate_type, FORM, entry_of, project
    )
    model = wire_read_model(settings, outbox, of_orders)
    return Application(
        orders=Orders(aggregates, utc_now),
        outbox=outbox,
        callers=Callers(settings.platform_authenticates),
        mails=wire_effects(settings, outbox, READER.read, effect_of(LoggedMail())),
        subscriber=wire_subscriber(settings, outbox, READER.read, model.inbox.handle, BOARD_SUBSCRIPTION),
        board=Board(model.listing),
        read_model=model,
    )


application = OnePerProcess(wire)
"""The application of this process: call ``application()`` inside the running loop."""
