"""Whether a receiver can be reached is asked without a request: an event that is made up is an event to it."""

import asyncio
import socket
import ssl
from collections.abc import Sequence
from urllib.parse import urlsplit

from aiohttp import ThreadedResolver

from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.outbox.errors import Unavailable
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.settings.transports import Webhook
from cosmos_outbox.webhook.addresses import AddressRefused, CheckedResolver, check_literal


async def reach(target: Webhook, *, seconds: float) -> float:
    """Open a connection to the first allowed address that takes one, TLS included. Returns the seconds that it took.

    Raises Unavailable, or Misconfigured where no address may be asked.
    """
    url = urlsplit(target.url)
    host, tls = url.hostname or "", url.scheme == "https"
    port = url.port or (443 if tls else 80)
    try:
        check_literal(target)
        async with asyncio.timeout(seconds):
            resolver = CheckedResolver(target, ThreadedResolver())
            addresses = [each["host"] for each in await resolver.resolve(host, port, socket.AF_UNSPEC)]
            return await _open(addresses, port, tls=host if tls else None)
    except AddressRefused:
        raise Misconfigured(
            f"{target.destination} leads to an address that may not be asked: correct WEBHOOK_URL, or set "
            "WEBHOOK_PRIVATE=true for a receiver in a private network"
        ) from None
    except (OSError, TimeoutError) as error:
        raise Unavailable(
            f"{target.destination} cannot be reached ({type(error).__name__}): look at the receiver and WEBHOOK_URL"
        ) from error


async def _open(addresses: Sequence[str], port: int, *, tls: str | None) -> float:
    """``tls``: whose certificate is asked for. Raises the OSError of the last address."""
    refused = OSError("the name has no address")
    for address in addresses:
        began = monotonic()
        try:
            _, writer = await asyncio.open_connection(
                address, port, ssl=ssl.create_default_context() if tls else None, server_hostname=tls
            )
        except OSError as error:
            refused = error
        else:
            took = monotonic() - began
            writer.close()
            return took
    raise refused
