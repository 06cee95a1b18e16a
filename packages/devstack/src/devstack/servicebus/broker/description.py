"""The declared properties of an entity. Immutable: an update replaces the description, so no reader sees half of one.

Defaults are those of Azure Service Bus for an entity that is created without the property.
"""

from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict

Kind = Literal["queue", "topic", "subscription"]
Status = Literal["Active", "Disabled", "SendDisabled", "ReceiveDisabled"]

DEFAULT_LOCK_MS = 60_000
DEFAULT_MAX_DELIVERY_COUNT = 10
DEFAULT_DUPLICATE_WINDOW_MS = 600_000
DEFAULT_MAX_SIZE_MEGABYTES = 1024
DEFAULT_MAX_MESSAGE_KILOBYTES = 256
MAX_BATCH_BYTES = 1_048_576
"""Of an entity that takes larger messages, too: a batch has at most 1 MB whatever one message may have."""

DEFAULT_RULE = "$Default"


class Rule(BaseModel):
    """One filter of a subscription. The rules that match a message and have no action make one copy together; each
    matching rule with an action makes a copy of its own."""

    model_config = ConfigDict(frozen=True)

    name: str
    kind: Literal["true", "false", "sql", "correlation"]
    expression: str | None = None
    """The SQL of a ``sql`` filter."""

    parameters: dict[str, Any] = {}
    """Named values that the SQL refers to as ``@name``."""

    system: dict[str, str] = {}
    """Of a correlation filter: what each named message property must equal."""

    properties: dict[str, Any] = {}
    """Of a correlation filter: what each named application property must equal."""

    action: str | None = None
    """SQL that changes the copy which this rule makes."""

    action_parameters: dict[str, Any] = {}


class Description(BaseModel):
    """The properties of one queue, topic or subscription. Durations are milliseconds, None means without limit."""

    model_config = ConfigDict(frozen=True)

    path: str
    """``name`` or ``topic/subscriptions/name``, spelled as the creator did; entities are found without case."""

    kind: Kind
    lock_ms: int = DEFAULT_LOCK_MS
    max_delivery_count: int = DEFAULT_MAX_DELIVERY_COUNT
    default_ttl_ms: int | None = None
    dead_letter_on_expiration: bool = False
    requires_session: bool = False
    requires_duplicate_detection: bool = False
    duplicate_window_ms: int = DEFAULT_DUPLICATE_WINDOW_MS
    partitioned: bool = False
    max_size_megabytes: int = DEFAULT_MAX_SIZE_MEGABYTES
    max_message_kilobytes: int = DEFAULT_MAX_MESSAGE_KILOBYTES
    status: Status = "Active"
    forward_to: str | None = None
    """The entity that every message goes on to, as a path or an address."""

    forward_dead_letters_to: str | None = None
    rules: tuple[Rule, ...] = ()
    """Of a subscription. None matches nothing; a new subscription starts with :func:`default_rule`."""

    extra: dict[str, str] = {}
    """Properties of the management API that are kept and returned, and change nothing here."""

    created_ms: int = 0
    updated_ms: int = 0

    @property
    def max_message_bytes(self) -> int:
        return self.max_message_kilobytes * 1024

    @property
    def max_batch_bytes(self) -> int:
        return min(self.max_message_bytes, MAX_BATCH_BYTES)

    @property
    def can_send(self) -> bool:
        return self.status in ("Active", "ReceiveDisabled")

    @property
    def can_receive(self) -> bool:
        return self.status in ("Active", "SendDisabled")


def entity_path(address: str) -> str:
    """The path in an address: ``amqps://host:port/queue/`` and ``queue`` are the same entity."""
    path = urlsplit(address).path if "://" in address else address
    return path.strip("/")


def default_rule() -> Rule:
    """The rule that a subscription gets when its creator names none: everything matches."""
    return Rule(name=DEFAULT_RULE, kind="true", expression="1=1")
