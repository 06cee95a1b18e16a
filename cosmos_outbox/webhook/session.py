"""An answer is the answer to the request before it: no request leaves on a connection where one lies that came unasked.

A server that refuses a request without having read its body may take the body for a request, and answer that too. The
next event would be taken for accepted, or be parked, by an answer that is not its own.

Whether a receiver can be reached is asked without a request: an event that is made up is an event to it.

No request leaves for an address that was not checked: what DNS answers is checked, and connected to, in one step.

A receiver's name is somebody else's to answer. It must not lead into the network of the relay, nor to a cloud's
metadata, whatever the name answered an hour ago.
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
"""A cloud's own, and not link-local: Azure's is even public by its number
(https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16)."""

_PRIVATE = [
    ipaddress.ip_network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
]
"""Where a network's own machines are."""

_OF_PROTOCOLS = [ipaddress.ip_network(text) for text in ("192.0.0.0/24", "2001::/23")]
"""Each version of Python takes another part of them for public; one cloud has its metadata there."""

_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
"""All that IPv6 has given out. Outside of it are forms of IPv4 addresses that a network translates as it likes."""

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class AddressRefused(OSError):
    """The target's name leads to no address that may be asked."""


def is_allowed(text: str, target: Webhook) -> bool:
    """Whether a request of the target may go to this address."""
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
    """An address in the URL itself is asked of no resolver. Raises AddressRefused."""
    host = urlsplit(target.url).hostname or ""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return
    if not is_allowed(host, target):
        raise AddressRefused(host)


def _meant(address: Address) -> Address:
    """The IPv4 address that a router would make of an IPv6 one."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else None) or address


class CheckedResolver(AbstractResolver):
    """Tells a connector those addresses of a name that may be asked; it connects to what it is told."""

    def __init__(self, target: Webhook, resolver: AbstractResolver | None = None) -> None:
        self._target = target
        self._resolver = resolver or ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The allowed addresses. Raises AddressRefused when the name has no such address, OSError when it has none."""
        found = await self._resolver.resolve(host, port, family)
        allowed = [each for each in found if is_allowed(each["host"].partition("%")[0], self._target)]
        if found and not allowed:
            raise AddressRefused(host)
        return allowed

    async def close(self) -> None:
        """Close the resolver behind."""
        await self._resolver.close()


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


class Unasked(aiohttp.ClientConnectionError):
    """There was an answer before the request: nothing was sent, and the connection is closed."""


class _Request(aiohttp.ClientRequest):
    async def send(self, conn: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        if conn.protocol is not None and conn.protocol.should_close:
            raise Unasked
        return await super().send(conn)


def open_session(
    target: Webhook, resolver: AbstractResolver | None, tls: ssl.SSLContext | bool
) -> aiohttp.ClientSession:
    """What posts to the target, at addresses that may be asked alone; the caller closes it."""
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
