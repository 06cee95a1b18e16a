"""Reads the settings of the service's one transport; those of the others are not needed.

The service declares which, and ``TRANSPORT`` beats that. Each transport is a frozen object that its loader makes of the
environment; what builds and checks it is in ``cosmos_outbox/composition/transports.py``.
"""

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import field, replace
from typing import TYPE_CHECKING, ClassVar, Literal
from urllib.parse import urlsplit

from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.settings.connections import Connection, resolve
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.settings.names import Named, flag, number

if TYPE_CHECKING:
    from cosmos_outbox.outbox.publisher import CloudEvents, Publisher

SECRET_BYTES = range(24, 65)
"""A secret's length (https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md)."""

_PREFIX = "whsec_"
_LOCALHOST = "localhost"
_NUMERIC = re.compile(r"(?i)(?:.*\.)?(?:0x[0-9a-f]*|[0-9]+)\.?")
"""Hosts that some resolvers read as an address, such as 127.1 or 0x7f000001."""
_NAME = re.compile(r"[a-z0-9_.-]+")
"""A host name as DNS allows it: libraries turn any other into different names, or into an address."""


@dataclass(frozen=True)
class Webhook:
    """One receiver of events, with the limits of the requests to it."""

    name: ClassVar[Literal["webhook"]] = "webhook"
    url: str
    secrets: Sequence[str] = field(repr=False)
    """Each request is signed with all of them, and a receiver accepts any: so secrets are rotated without a gap."""
    concurrency: int = 8
    """The number of concurrent requests; an aggregate has at most one."""
    request_seconds: int = 10
    """The time that the receiver has to answer."""
    private: bool = False
    """Whether its name may resolve to a private address; never to a link-local one, which serves cloud metadata."""

    @property
    def destination(self) -> str:
        """The host, for people and telemetry: a path or a query may hold a secret."""
        return urlsplit(self.url).netloc.rpartition("@")[2]

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
    """Returns the receiver that the settings describe. Raises Misconfigured."""
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


Name = Literal["servicebus", "storagequeue", "webhook", "own"]
"""A value of ``TRANSPORT``; own: a publisher that the service itself declares, which no setting can name."""

PublisherOf = Callable[[Mapping[str, str], "CloudEvents", AsyncExitStack], "Publisher"]
"""Returns a publisher of the service's own, made of its settings, and connects to nothing. The second argument has the
CloudEvents attributes of an event; the third closes at the end what the publisher opened."""

SESSIONS = 32
"""The default number of sessions, as many as a subscriber holds at once. One session has all of an aggregate."""

AGGREGATE = "aggregate"
"""The value of SERVICEBUS_SESSIONS for a session for each aggregate."""

_QUEUE = re.compile(r"(?=.{3,63}$)[a-z0-9]+(-[a-z0-9]+)*")
"""A valid name: https://learn.microsoft.com/rest/api/storageservices/naming-queues-and-metadata"""

Shown = Mapping[str, str | int | bool | None]
"""Settings that an operator may see, by their names: none is a secret."""


@dataclass(frozen=True)
class ServiceBus:
    """A topic, with a subscription for each subscriber; or a queue, for one."""

    name: ClassVar[Name] = "servicebus"
    connection: Connection
    topic: str
    partitioned: bool = False
    sessions: int | None = SESSIONS
    """The number of buckets of aggregates, each a session; None: each aggregate has its own session."""
    is_queue: bool = False
    """Whether ``topic`` is the name of a queue."""

    @property
    def kind(self) -> str:
        """The word for it in messages to operators."""
        return "queue" if self.is_queue else "topic"

    @property
    def setting(self) -> str:
        """The setting that names it."""
        return "SERVICEBUS_QUEUE" if self.is_queue else "SERVICEBUS_TOPIC"

    @property
    def destination(self) -> str:
        """The destination and source of messages, as telemetry names it."""
        return self.topic

    def shown(self) -> Shown:
        """See :data:`Shown`."""
        return {
            "SERVICEBUS__fullyQualifiedNamespace": self.connection.address or "(a connection string)",
            self.setting: self.topic,
            "SERVICEBUS_TOPIC_PARTITIONED": self.partitioned,
            "SERVICEBUS_SESSIONS": self.sessions or AGGREGATE,
            "SERVICEBUS_WEBSOCKETS": self.connection.websockets,
        }


@dataclass(frozen=True)
class StorageQueue:
    """Queues in a storage account: each subscriber has its own, and an event goes to each."""

    name: ClassVar[Name] = "storagequeue"
    connection: Connection
    queues: tuple[str, ...]
    encoded: bool = True
    """Whether a message is base64, as the Functions host reads it by default (host.json)."""

    @property
    def destination(self) -> str:
        """The destination of messages, as telemetry names it."""
        return ",".join(self.queues)

    def shown(self) -> Shown:
        """See :data:`Shown`."""
        return {
            "STORAGEQUEUE__queueServiceUri": self.connection.address or "(a connection string)",
            "STORAGEQUEUE_QUEUES": self.destination,
            "STORAGEQUEUE_ENCODING": "base64" if self.encoded else "none",
        }


@dataclass(frozen=True)
class OwnPublisher:
    """A publisher that the service makes, for a broker that the library does not know."""

    name: ClassVar[Name] = "own"
    destination: ClassVar[str] = "its own publisher"
    make: PublisherOf
    environment: Mapping[str, str] = field(repr=False)

    def shown(self) -> Shown:
        """See :data:`Shown`: the library knows none of its settings."""
        return {}


Transport = ServiceBus | StorageQueue | Webhook | OwnPublisher


def foreign(transport: Transport, topic: str) -> Transport:
    """Returns the transport of another team's messages: of Service Bus its topic, over the same connection.

    To a subscriber's queue any team may send.
    """
    if isinstance(transport, ServiceBus):
        return replace(transport, topic=topic, is_queue=False)
    return transport


def servicebus_of(transport: Transport) -> ServiceBus:
    """Returns the settings of Service Bus for code that requires it. Raises Misconfigured."""
    if not isinstance(transport, ServiceBus):
        raise Misconfigured(f"the service's transport is {transport.name}: this works over Service Bus alone")
    return transport


def not_received(subscription: str, transport: Name) -> Misconfigured:
    """The message for a subscriber of the service itself, for which nothing waits."""
    instead = "by HTTP, as examples/receiver does" if transport == "webhook" else "from that broker"
    return Misconfigured(
        f"{subscription} cannot receive: the service's transport is {transport}, which only sends events. Receive "
        f"them {instead}, or set TRANSPORT=servicebus"
    )


@dataclass(frozen=True)
class Declared:
    """The transport that the service declares, and the settings that override it."""

    topic: Named
    transport: "Name | PublisherOf" = "servicebus"
    subscriptions: Sequence[Named] = ()
    """The subscriptions to the service's own events."""


def named(environment: Mapping[str, str], declared: Name | PublisherOf) -> Name:
    """Returns the name of the service's transport. Raises Misconfigured: there is none of that name."""
    wanted = environment.get("TRANSPORT") or declared
    if callable(wanted):
        return "own"
    for name in LOADERS:
        if wanted == name:
            return name
    raise Misconfigured(f"TRANSPORT is {wanted!r}: set it to one of {', '.join(LOADERS)}, or remove it")


def load_transport(environment: Mapping[str, str], declared: Declared) -> Transport:
    """Returns the transport with its settings. Raises Misconfigured, naming the setting that is missing or wrong."""
    name = named(environment, declared.transport)
    if name == "own":
        assert callable(declared.transport), "no setting names it"
        return OwnPublisher(declared.transport, environment)
    return LOADERS[name](environment, declared)


def _servicebus(environment: Mapping[str, str], declared: Declared) -> ServiceBus:
    queue = environment.get("SERVICEBUS_QUEUE")
    if queue and len(declared.subscriptions) > 1:
        names = ", ".join(each.resolve(environment) for each in declared.subscriptions)
        raise Misconfigured(
            f"SERVICEBUS_QUEUE is set, and a queue has one subscriber, where the service has several ({names}): remove "
            "SERVICEBUS_QUEUE and send to a topic"
        )
    return ServiceBus(
        connection=replace(
            resolve(environment, "SERVICEBUS", "fullyQualifiedNamespace"),
            websockets=flag(environment, "SERVICEBUS_WEBSOCKETS"),
        ),
        topic=queue or declared.topic.resolve(environment),
        partitioned=flag(environment, "SERVICEBUS_TOPIC_PARTITIONED"),
        sessions=_sessions(environment),
        is_queue=bool(queue),
    )


def _sessions(environment: Mapping[str, str]) -> int | None:
    if environment.get("SERVICEBUS_SESSIONS") == AGGREGATE:
        return None
    try:
        return number(environment, "SERVICEBUS_SESSIONS", default=SESSIONS, lowest=1, highest=1_000)
    except Misconfigured as error:
        raise Misconfigured(f"{error}, or to {AGGREGATE} for a session for each aggregate") from None


def _storagequeue(environment: Mapping[str, str], declared: Declared) -> StorageQueue:
    encoding = environment.get("STORAGEQUEUE_ENCODING") or "base64"
    if encoding not in ("base64", "none"):
        raise Misconfigured(
            f"STORAGEQUEUE_ENCODING is {encoding!r}: set it to base64 or none, as host.json has it"
        )
    return StorageQueue(
        connection=resolve(environment, "STORAGEQUEUE", "queueServiceUri"),
        queues=_queues(environment, declared),
        encoded=encoding == "base64",
    )


def _queues(environment: Mapping[str, str], declared: Declared) -> tuple[str, ...]:
    said = [each.strip() for each in environment.get("STORAGEQUEUE_QUEUES", "").split(",") if each.strip()]
    queues = tuple(dict.fromkeys(said or [each.resolve(environment) for each in declared.subscriptions]))
    if not queues:
        raise Misconfigured(
            "STORAGEQUEUE_QUEUES is not set, and the service has no subscriber of its own events: name the queues that "
            "they go to, with commas between them"
        )
    for each in queues:
        if not _QUEUE.fullmatch(each):
            raise Misconfigured(
                f"{each!r} can be no queue: name it with 3 to 63 lower-case letters, digits and single dashes in "
                "STORAGEQUEUE_QUEUES, or in the setting of its subscription"
            )
    return queues


LOADERS: Mapping[Name, Callable[[Mapping[str, str], Declared], Transport]] = {
    "servicebus": _servicebus,
    "storagequeue": _storagequeue,
    "webhook": lambda environment, _: load_webhook(environment),
}
"""The loader of each transport's settings."""
