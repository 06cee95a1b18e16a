"""No request leaves for an address that was not checked: what DNS answers is checked, and connected to, in one step.

A receiver's name is somebody else's to answer. It must not lead into the network of the relay, nor to a cloud's
metadata, whatever the name answered an hour ago.
"""

import ipaddress
import socket
from urllib.parse import urlsplit

from aiohttp import ThreadedResolver
from aiohttp.abc import AbstractResolver, ResolveResult

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
