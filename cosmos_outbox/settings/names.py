"""Resolves the names of containers and topics: from the environment or the service; a missing name is an error.

Of a team's own documents the library knows only what is declared here.
"""

import re
from collections.abc import Mapping, Sequence

from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.settings.errors import Misconfigured

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_LONGEST = 40


def check_name(name: str, what: str = "a service") -> None:
    """Check a name after which containers, subscriptions and settings are called. Raises ValueError."""
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        raise ValueError(
            f"{name!r} cannot name {what}: take at most {_LONGEST} small letters, digits and single hyphens, such as "
            "room-bookings"
        )


@dataclass(frozen=True)
class Named:
    """A name that a setting can override, such as that of a subscription or a container of entries."""

    setting: str
    """The environment variable."""
    declared: str | None = None
    """The name that the service declares; None: the setting is required."""

    def resolve(self, environment: Mapping[str, str]) -> str:
        """Returns the name. Raises Misconfigured if neither gives one."""
        name = environment.get(self.setting) or self.declared
        if not name:
            raise Misconfigured(
                f"{self.setting} is not set, and the service declares no name in its place: set {self.setting}, or "
                "name it in the service's Names"
            )
        return name


def named_after(name: str, what: str, given: Named | str | None = None) -> Named:
    """Returns the name of a read model's or effect's container, for example: its own by default."""
    if isinstance(given, Named):
        return given
    return Named(f"{name.upper().replace('-', '_')}_{what}", given or name)


@dataclass(frozen=True)
class Names:
    """The service's names of its database, containers and topic, which settings can override.

    The containers of the outbox itself are named after the service's own container by default:
    ``bookings-leases``, ``bookings-parked``, ``bookings-claims``, ``bookings-set-aside``.
    """

    database: str | None = None
    """``COSMOS_DATABASE`` overrides it, as the setting of each name does."""
    container: str | None = None
    """The container of the aggregates and their events: ``COSMOS_CONTAINER``."""
    topic: str | None = None
    """``SERVICEBUS_TOPIC``"""
    leases: str | None = None
    """The container of the change feed's leases: ``COSMOS_LEASE_CONTAINER``."""
    parked: str | None = None
    """The container of events that cannot be sent: ``COSMOS_PARKED_CONTAINER``."""
    claims: str | None = None
    """The container of idempotency keys: ``COSMOS_CLAIM_CONTAINER``."""
    set_aside: str | None = None
    """The container of messages that a subscriber could not apply: ``COSMOS_SET_ASIDE_CONTAINER``."""

    @property
    def topic_named(self) -> Named:
        """The topic, which only Service Bus has."""
        return self.all["topic"]

    @property
    def all(self) -> Mapping[str, Named]:
        """Returns each name by its field."""
        settings = {
            "database": "COSMOS_DATABASE",
            "container": "COSMOS_CONTAINER",
            "topic": "SERVICEBUS_TOPIC",
            "leases": "COSMOS_LEASE_CONTAINER",
            "parked": "COSMOS_PARKED_CONTAINER",
            "claims": "COSMOS_CLAIM_CONTAINER",
            "set_aside": "COSMOS_SET_ASIDE_CONTAINER",
        }
        return {field: Named(setting, getattr(self, field)) for field, setting in settings.items()}

    def resolve(self, environment: Mapping[str, str]) -> Mapping[str, str]:
        """Returns every name in the store by its field. Raises Misconfigured for the first without a value."""
        named = {field: each for field, each in self.all.items() if field != "topic"}
        container = named["container"].resolve(environment)
        beside = {"leases": "leases", "parked": "parked", "claims": "claims", "set_aside": "set-aside"}
        return {
            field: (environment.get(each.setting) or each.declared or f"{container}-{beside[field]}")
            if field in beside
            else each.resolve(environment)
            for field, each in named.items()
        }


@dataclass(frozen=True)
class ExistingContainer:
    """A container that holds a team's own documents, and beside each the events of its changes.

    Raises ValueError: it could not hold events, or events could not be numbered in it.
    """

    partition_key: str | Sequence[str]
    """The container's partition key path, such as ``/tenantId``; for a hierarchical key the list of its paths."""
    aggregates: Mapping[str, str | None]
    """The types of the aggregates that raise events, each with the path of the sequence in its document, such as
    ``/lastSequence``: the document is then written with each event, conditional on the version read, and the events
    have no gap. None: the events of this type have no sequence."""
    default_ttl: int = -1
    """The container's default TTL in seconds; -1: a document expires only by a ``ttl`` of its own."""

    def __post_init__(self) -> None:
        if self.default_ttl != -1 and self.default_ttl < 1:
            raise ValueError(
                "default_ttl must be -1, or a number of seconds: with TTL off no event would ever expire"
            )

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the partition key."""
        return (self.partition_key,) if isinstance(self.partition_key, str) else tuple(self.partition_key)


@dataclass(frozen=True)
class DocumentSource:
    """Selects the team's own documents that are the aggregates of one type: a read model is healed from them."""

    where: Mapping[str, str | int | bool]
    """The paths and values of only these documents, as ``{"/type": "booking"}``; to be indexed."""
    id: str = "/id"
    """The path of the aggregate's id."""
    deleted: str = "/deleted"
    """The path of a flag that is true in a deleted aggregate's document, as long as that document exists."""


@dataclass(frozen=True)
class WireNames:
    """The names that differ between one service and another."""

    source: str
    """CloudEvents ``source``, which together with the id identifies an event everywhere."""
    untyped: str | None = None
    """The aggregate type of event documents that were stored without one; None: there are no such documents."""
    own: ExistingContainer | None = None
    """A team's own container, if the events are stored in one."""


def flag(environment: Mapping[str, str], name: str) -> bool:
    """Returns true or false; false if it is not set. Raises Misconfigured."""
    text = environment.get(name, "").lower()
    if text not in ("", "true", "false"):
        raise Misconfigured(f"{name} is {text!r}: set it to true or false")
    return text == "true"


def number(environment: Mapping[str, str], name: str, *, default: int, lowest: int, highest: int) -> int:
    """Returns a whole number. Raises Misconfigured."""
    text = environment.get(name) or str(default)
    if not (text.isascii() and text.isdigit() and lowest <= int(text) <= highest):
        raise Misconfigured(f"{name} is {text!r}: set it to a number from {lowest} to {highest}")
    return int(text)
