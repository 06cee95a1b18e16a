"""The queues as they are deployed are looked at, and nothing is changed."""

import asyncio
from collections.abc import Sequence

from azure.core.exceptions import ClientAuthenticationError, ResourceNotFoundError

from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.outbox.hindrance import Hindrance
from cosmos_outbox.settings.connections import Connection, Credential
from cosmos_outbox.settings.errors import CannotCheck, Denied, UnusableConnection, first_line
from cosmos_outbox.storagequeue.client import queue_service
from cosmos_outbox.storagequeue.errors import SDK_ERRORS, hindrance, reason

DEADLINE_SECONDS = 15.0
"""The longest that the looks at all queues may take, with their retries and a sign-in."""


async def look(
    connection: Connection, credential: Credential | None, queues: Sequence[str], *, seconds: float
) -> float:
    """Look at each queue. Returns the seconds of the last look. Raises Denied, CannotCheck; within ``seconds``."""
    took = 0.0
    for name in queues:
        began = monotonic()
        if await messages_in(connection, credential, name, seconds=seconds) is None:
            raise CannotCheck(
                f"has no queue {name}: create it as the deployment does, or correct STORAGEQUEUE_QUEUES"
            )
        took = monotonic() - began
    return took


async def messages_in(
    connection: Connection, credential: Credential | None, queue: str, *, seconds: float
) -> int | None:
    """About how many messages a queue has; None: there is no such queue. Raises Denied, CannotCheck."""
    try:
        async with asyncio.timeout(seconds), queue_service(connection, credential) as service:
            found = await service.get_queue_client(queue).get_queue_properties()
    except ResourceNotFoundError:
        return None
    except SDK_ERRORS as error:
        if hindrance(error) is Hindrance.BROKER_REFUSES and not isinstance(error, ClientAuthenticationError):
            raise Denied(first_line(error)) from error
        raise CannotCheck(reason(error, "it")) from error
    except ValueError as error:  # the SDK raises it for a connection string without its parts
        raise UnusableConnection from error
    return int(found.approximate_message_count or 0)
