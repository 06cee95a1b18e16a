"""Opens HTTP sessions that connect only to allowed addresses and never reuse a connection with unread data.

A server that refuses a request without reading its body may parse the body as a request and answer that too. The next
event would then be accepted or parked by a response that is not its own.

Reachability is checked without a request, because a receiver would take a made-up event for a real one.

Each DNS result is checked in the same step that connects to it. The receiver's owner controls its name, which must not
lead into the relay's network or to a cloud's metadata service, even if earlier results were harmless.
"""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Sequence
from urllib.parse import urlsplit

import aiohttp
from aiohttp import ThreadedResolver
from aiohttp.abc import AbstractResolver, ResolveResult

from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.outbox.errors import Unavailable
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.settings.transports import Webhook

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_OF_A_PLATFORM = {ipaddress.ip_address(text) for text in ("168.63.129.16", "fd00:ec2::254")}
"""Addresses of cloud platforms that are not link-local; Azure's is even formally a public one
(https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16)."""

_PRIVATE = [
    ipaddress.ip_network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
]
"""The address ranges of private networks."""

_OF_PROTOCOLS = [ipaddress.ip_network(text) for text in ("192.0.0.0/24", "2001::/23")]
"""Ranges of which Python's versions differ on what is public; one cloud has its metadata service there."""

_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
"""All assigned public IPv6 addresses. Others may embed IPv4 addresses that a network translates in its own way."""

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class AddressRefused(OSError):
    """The target's name resolves to no allowed address."""


def is_allowed(text: str, target: Webhook) -> bool:
    """Whether a request for the target may be sent to this address."""
    address = _meant(ipaddress.ip_address(text))
    if target.is_loopback:
        return address.is_loopback
    if address in _OF_A_PLATFORM or address.is_multicast:
        return False
    if any(address in network for network in _OF_PROTOCOLS):
        return False
    if any(address in network for network in _PRIVATE):
        return target.private
    return address.is_global and (address.version == 4 or address in _GLOBAL_UNICAST)


def check_literal(target: Webhook) -> None:
    """Checks an IP address in the URL itself, which no resolver sees. Raises AddressRefused."""
    host = urlsplit(target.url).hostname or ""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return
    if not is_allowed(host, target):
        raise AddressRefused(host)


def _meant(address: Address) -> Address:
    """Returns the IPv4 address that an IPv6 address embeds; otherwise the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else None) or address


class CheckedResolver(AbstractResolver):
    """Resolves a name to its allowed addresses; the connector connects only to these."""

    def __init__(self, target: Webhook, resolver: AbstractResolver | None = None) -> None:
        self._target = target
        self._resolver = resolver or ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Returns the allowed addresses. Raises AddressRefused if none is allowed, OSError if the name has none."""
        found = await self._resolver.resolve(host, port, family)
        allowed = [each for each in found if is_allowed(each["host"].partition("%")[0], self._target)]
        if found and not allowed:
            raise AddressRefused(host)
        return allowed

    async def close(self) -> None:
        """Closes the underlying resolver."""
        await self._resolver.close()


async def reach(target: Webhook, *, seconds: float) -> float:
    """Connects to the first allowed address that accepts, with TLS. Returns the duration (seconds).

    Raises Unavailable, or Misconfigured if no address is allowed.
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
    """Connects to the first address that accepts. ``tls``: the certificate's host. Raises the last OSError."""
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


class Unasked(aiohttp.ClientConnectionError):
    """A response arrived before the request: nothing was sent, and the connection is closed."""


class _Request(aiohttp.ClientRequest):
    async def send(self, conn: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        if conn.protocol is not None and conn.protocol.should_close:
            raise Unasked
        return await super().send(conn)


def open_session(
    target: Webhook, resolver: AbstractResolver | None, tls: ssl.SSLContext | bool
) -> aiohttp.ClientSession:
    """Returns the session that posts to the target, at allowed addresses only; the caller closes it."""
    connector = aiohttp.TCPConnector(
        resolver=CheckedResolver(target, resolver), use_dns_cache=False, limit=target.concurrency, ssl=tls
    )
    return aiohttp.ClientSession(
        connector=connector,
        request_class=_Request,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=target.request_seconds),
    )
