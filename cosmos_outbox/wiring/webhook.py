"""What posts the events of a service to its receiver. aiohttp is imported when something is first sent."""

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, NoReturn

from cosmos_outbox.operations.dependencies import LOOK_SECONDS
from cosmos_outbox.outbox.cloud_events import CloudEvents
from cosmos_outbox.outbox.publisher import Publisher
from cosmos_outbox.settings.environment import Settings
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.settings.webhook import Webhook

if TYPE_CHECKING:
    from aiohttp import ClientSession


def publisher(
    of: Webhook,
    _: Settings,
    service: CloudEvents,
    resources: AsyncExitStack,
    session: "ClientSession | None" = None,
) -> Publisher:
    """See :class:`cosmos_outbox.wiring.transports.TransportKind`."""
    from cosmos_outbox.webhook.publisher import WebhookPublisher  # noqa: PLC0415 - slow to import: see LatePublisher

    made = WebhookPublisher(of, service=service, session=session)
    resources.push_async_callback(made.close)
    return made


def queues(_: Webhook, __: AsyncExitStack, subscription: str) -> NoReturn:
    """Nothing waits for a subscriber. Raises Misconfigured."""
    raise not_received(subscription)


def not_received(subscription: str) -> Misconfigured:
    """What a subscriber of the service itself is told."""
    return Misconfigured(
        f"{subscription} cannot receive: the service's transport is webhook, which posts events. Receive "
        "them by HTTP, as examples/receiver does, or set TRANSPORT=servicebus"
    )


async def check(of: Webhook) -> float | None:
    """See :class:`cosmos_outbox.wiring.transports.TransportKind`."""
    from cosmos_outbox.webhook.reaching import reach  # noqa: PLC0415 - slow to import: see LatePublisher

    return await reach(of, seconds=LOOK_SECONDS)
