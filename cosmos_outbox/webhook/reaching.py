"""Whether a receiver can be reached is asked without a request: an event that is made up is an event to it."""

import asyncio
import ssl
from urllib.parse import urlsplit

from aiohttp import ThreadedResolver

from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.outbox.errors import Unavailable
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.settings.webhook import Webhook
from cosmos_outbox.webhook.addresses import AddressRefused, CheckedResolver, check_literal


async def reach(target: Webhook, *, seconds: float) -> float:
    """Open a connection to the first address that is allowed, TLS included. Returns the seconds that it took.

    Raises Unavailable, or Misconfigured where no address may be asked.
    """
    url = urlsplit(target.url)
    host, tls = url.hostname or "", url.scheme == "https"
    port = url.port or (443 if tls else 80)
    try:
        check_literal(target)
        async with asyncio.timeout(seconds):
            found = await CheckedResolver(target, ThreadedResolver()).resolve(host, port)
            began = monotonic()
            _, writer = await asyncio.open_connection(
                found[0]["host"],
                port,
                ssl=ssl.create_default_context() if tls else None,
                server_hostname=host if tls else None,
            )
            took = monotonic() - began
            writer.close()
    except AddressRefused:
        raise Misconfigured(
            f"{target.destination} leads to an address that may not be asked: correct WEBHOOK_URL, or set "
            "WEBHOOK_PRIVATE=true for a receiver in a private network"
        ) from None
    except (OSError, TimeoutError) as error:
        raise Unavailable(
            f"{target.destination} cannot be reached ({type(error).__name__}): look at the receiver and WEBHOOK_URL"
        ) from error
    return took
