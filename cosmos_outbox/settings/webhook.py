"""A webhook's settings: whatever makes a request unsafe or unsigned is refused at the start, by name."""

import base64
import binascii
import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import urlsplit

from cosmos_outbox.settings.errors import Misconfigured

SECRET_BYTES = range(24, 65)
"""How long a secret is (https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md)."""

_PREFIX = "whsec_"
_LOCALHOST = "localhost"
_NUMERIC = re.compile(r"(?i)(?:.*\.)?(?:0x[0-9a-f]*|[0-9]+)\.?")
"""Hosts that some resolvers read as an address, such as 127.1 or 0x7f000001."""


class Mode(StrEnum):
    """Where a CloudEvent's attributes are in a request."""

    STRUCTURED = "structured"
    """In the body, beside the data: the signature covers them."""
    BINARY = "binary"
    """In headers, which the signature does not cover; the body is the data alone."""


@dataclass(frozen=True)
class WebhookTarget:
    """One receiver of events, and how it is treated."""

    url: str
    secrets: Sequence[str] = field(repr=False)
    """Each request is signed with all of them, so that a receiver may have any: so they are changed without a gap."""
    mode: Mode = Mode.STRUCTURED
    concurrency: int = 8
    """How many requests are under way at once; an aggregate has one at most."""
    rate: int = 0
    """The most requests a second; 0: as many as ``concurrency`` lets through."""
    request_seconds: int = 10
    """How long the receiver may take to answer."""
    private: bool = False
    """Whether its name may lead to a private address; never to a link-local one, where a cloud's metadata are."""

    @property
    def shown(self) -> str:
        """The target for people and logs: a path or a query may hold a secret."""
        return urlsplit(self.url).netloc.rpartition("@")[2]

    @property
    def is_loopback(self) -> bool:
        """Whether the URL itself names this machine."""
        host = urlsplit(self.url).hostname or ""
        return host == _LOCALHOST or ((found := _address(host)) is not None and found.is_loopback)


def load_webhook(environment: Mapping[str, str], prefix: str = "WEBHOOK") -> WebhookTarget:
    """The target that the settings with this prefix describe. Raises Misconfigured."""
    url = environment.get(f"{prefix}_URL", "")
    mode = environment.get(f"{prefix}_MODE") or Mode.STRUCTURED
    if mode not in set(Mode):
        raise Misconfigured(f"{prefix}_MODE is {mode!r}: set it to structured or binary")
    target = WebhookTarget(
        url=_checked_url(f"{prefix}_URL", url),
        secrets=_secrets(f"{prefix}_SECRETS", environment.get(f"{prefix}_SECRETS", "")),
        mode=Mode(mode),
        concurrency=_number(environment, f"{prefix}_CONCURRENCY", 8, range(1, 257)),
        rate=_number(environment, f"{prefix}_RATE", 0, range(10_001)),
        request_seconds=_number(environment, f"{prefix}_SECONDS", 10, range(1, 31)),
        private=_flag(environment, f"{prefix}_PRIVATE"),
    )
    if not target.is_loopback and urlsplit(url).scheme != "https":
        raise Misconfigured(
            f"{prefix}_URL is not https: only a receiver on this machine may be asked by http"
        )
    return target


def _checked_url(name: str, url: str) -> str:
    if not url:
        raise Misconfigured(f"{name} is missing: set it to the https URL that takes the events")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if parts.scheme not in ("http", "https") or not host or parts.fragment:
        raise Misconfigured(
            f"{name} is no URL of a receiver: set it to one such as https://example.com/events"
        )
    if parts.username is not None or parts.password is not None:
        raise Misconfigured(f"{name} holds a user or a password: remove it, requests are signed instead")
    if _address(host) is None and _NUMERIC.fullmatch(host):
        raise Misconfigured(
            f"{name} writes an address in an uncommon way: write it as 192.0.2.1 or [2001:db8::1]"
        )
    return url


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _secrets(name: str, text: str) -> Sequence[str]:
    secrets = text.split()
    if not secrets:
        raise Misconfigured(
            f"{name} is missing: set it to {_PREFIX} and 24 to 64 random bytes in base64; several, the newest first, "
            "are separated by spaces"
        )
    for place, secret in enumerate(secrets, start=1):
        try:
            key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if not secret.startswith(_PREFIX) or len(key) not in SECRET_BYTES:
            raise Misconfigured(
                f"{name}: secret {place} is not {_PREFIX} and 24 to 64 bytes in base64: make a new one"
            )
    return secrets


def _number(environment: Mapping[str, str], name: str, default: int, allowed: range) -> int:
    text = environment.get(name) or str(default)
    if not (text.isascii() and text.isdigit() and int(text) in allowed):
        raise Misconfigured(
            f"{name} is {text!r}: set it to a number from {allowed.start} to {allowed.stop - 1}"
        )
    return int(text)


def _flag(environment: Mapping[str, str], name: str) -> bool:
    text = environment.get(name, "").lower()
    if text not in ("", "true", "false"):
        raise Misconfigured(f"{name} is {text!r}: set it to true or false")
    return text == "true"
