"""A webhook's settings: whatever makes a request unsafe or unsigned is refused at the start, by name."""

import base64
import binascii
import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Self
from urllib.parse import urlsplit

from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.settings.values import flag, number

SECRET_BYTES = range(24, 65)
"""How long a secret is (https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md)."""

_PREFIX = "whsec_"
_LOCALHOST = "localhost"
_NUMERIC = re.compile(r"(?i)(?:.*\.)?(?:0x[0-9a-f]*|[0-9]+)\.?")
"""Hosts that some resolvers read as an address, such as 127.1 or 0x7f000001."""
_NAME = re.compile(r"[a-z0-9_.-]+")
"""A host as DNS has it: of any other, each library makes a name of its own, or an address."""


@dataclass(frozen=True)
class Webhook:
    """One receiver of events, and how it is treated."""

    name: ClassVar[Literal["webhook"]] = "webhook"
    url: str
    secrets: Sequence[str] = field(repr=False)
    """Each request is signed with all of them, so that a receiver may have any: so they are changed without a gap."""
    concurrency: int = 8
    """How many requests are under way at once; an aggregate has one at most."""
    request_seconds: int = 10
    """How long the receiver may take to answer."""
    private: bool = False
    """Whether its name may lead to a private address; never to a link-local one, where a cloud's metadata are."""

    @property
    def destination(self) -> str:
        """The host, for people and telemetry: a path or a query may hold a secret."""
        return urlsplit(self.url).netloc.rpartition("@")[2]

    def beside(self, destination: str) -> Self:
        """Nothing is received from a webhook's sender but what it posts."""
        return self

    def shown(self) -> dict[str, str | int | bool | None]:
        """See :data:`cosmos_outbox.settings.transports.Shown`."""
        return {
            "WEBHOOK_URL": self.destination,
            "WEBHOOK_CONCURRENCY": self.concurrency,
            "WEBHOOK_SECONDS": self.request_seconds,
            "WEBHOOK_PRIVATE": self.private,
        }

    @property
    def is_loopback(self) -> bool:
        """Whether the URL itself names this machine."""
        host = urlsplit(self.url).hostname or ""
        return host == _LOCALHOST or ((found := _address(host)) is not None and found.is_loopback)


def load_webhook(environment: Mapping[str, str]) -> Webhook:
    """The receiver that the settings describe. Raises Misconfigured."""
    target = Webhook(
        url=_checked_url(environment.get("WEBHOOK_URL", "")),
        secrets=_secrets(environment.get("WEBHOOK_SECRETS", "")),
        concurrency=number(environment, "WEBHOOK_CONCURRENCY", default=8, lowest=1, highest=256),
        request_seconds=number(environment, "WEBHOOK_SECONDS", default=10, lowest=1, highest=30),
        private=flag(environment, "WEBHOOK_PRIVATE"),
    )
    if not target.is_loopback and urlsplit(target.url).scheme != "https":
        raise Misconfigured("WEBHOOK_URL is not https: only a receiver on this machine may be asked by http")
    return target


def _checked_url(url: str) -> str:
    if not url:
        raise Misconfigured("WEBHOOK_URL is missing: set it to the https URL that takes the events")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if parts.scheme not in ("http", "https") or not host or parts.fragment:
        raise Misconfigured(
            "WEBHOOK_URL is no URL of a receiver: set it to one such as https://example.com/events"
        )
    if parts.username is not None or parts.password is not None:
        raise Misconfigured("WEBHOOK_URL holds a user or a password: remove it, requests are signed instead")
    if _address(host) is None and (_NUMERIC.fullmatch(host) or not _NAME.fullmatch(host)):
        raise Misconfigured(
            "WEBHOOK_URL writes its host in an uncommon way: write a name as DNS has it, such as "
            "xn--bcher-kva.example, an address as 192.0.2.1 or [2001:db8::1]"
        )
    return url


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _secrets(text: str) -> Sequence[str]:
    secrets = text.split()
    if not secrets:
        raise Misconfigured(
            f"WEBHOOK_SECRETS is missing: set it to {_PREFIX} and 24 to 64 random bytes in base64; several, the newest "
            "first, are separated by spaces"
        )
    for place, secret in enumerate(secrets, start=1):
        try:
            key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if not secret.startswith(_PREFIX) or len(key) not in SECRET_BYTES:
            raise Misconfigured(
                f"WEBHOOK_SECRETS: secret {place} is not {_PREFIX} and 24 to 64 bytes in base64: make a new one"
            )
    return secrets
