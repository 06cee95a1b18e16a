"""The composition root of the order service: the use cases over an outbox, and the e-mails over an inbox."""

from dataclasses import dataclass

from examples.orders.mail import LoggedMail
from examples.orders.service import Orders
from examples.orders.subscriber import effect_of, read
from inbox.effect_operator import EffectOperator
from inbox.effect_upkeep import EffectUpkeep
from infra.effects import wire_effects
from infra.http.caller import Callers
from infra.settings import Settings
from infra.subscriber import Subscriber, wire_subscriber
from infra.wire_names import WireNames
from infra.wiring import OnePerProcess, Outbox, wire_outbox
from outbox.aggregates import Aggregates
from outbox.unit_of_work import utc_now

EFFECTS = "effects"
"""The container of what the subscriber remembers of its e-mails."""


@dataclass(frozen=True)
class Application:
    """The order service."""

    orders: Orders
    outbox: Outbox
    callers: Callers
    subscriber: Subscriber
    effects: EffectOperator
    upkeep: EffectUpkeep


def wire(settings: Settings) -> Application:
    """Build the order service from settings. Opens no connection: the first use opens it."""
    outbox = wire_outbox(settings, WireNames(source="/orders"))
    aggregates = Aggregates(outbox.open_unit_of_work, outbox.claims, settings.idempotency_old_records)
    effects = wire_effects(settings, outbox, EFFECTS, effect_of(LoggedMail()))
    return Application(
        orders=Orders(aggregates, utc_now),
        outbox=outbox,
        callers=Callers(settings.platform_authenticates),
        subscriber=wire_subscriber(settings, outbox, read, effects.inbox.handle),
        effects=effects,
        upkeep=EffectUpkeep(effects.inbox),
    )


application = OnePerProcess(wire)
"""The application of this process: call ``application()`` inside the running loop."""
