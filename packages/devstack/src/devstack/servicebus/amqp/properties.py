"""Config.json and the management API name the same properties: one table reads and writes them, and refuses the rest.

Names, formats and limits are those of the service's management API. Shorter lock durations and windows than the service
takes are accepted, so that tests need not wait.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from devstack.servicebus.broker.description import Description, Kind, default_rule

_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")
_FOREVER_MS = 10_000 * 24 * 3600 * 1000
"""A duration above this is TimeSpan.MaxValue in spirit: no limit."""

FOREVER = "P10675199DT2H48M5.4775807S"
MAX_LOCK_MS = 300_000
MAX_WINDOW_MS = 7 * 24 * 3600 * 1000
MAX_DELIVERY_COUNT = 2000
MAX_SIZE_MEGABYTES = 81_920
MAX_MESSAGE_KILOBYTES = 102_400
MAX_NAME = 260
MAX_SUBSCRIPTION_NAME = 50
_NAME = re.compile(r"[A-Za-z0-9](?:[\w./\-]*[A-Za-z0-9_])?", re.ASCII)


class NotSupported(ValueError):
    """A property or value that devstack does not do; the message names it."""


def read_duration(text: str) -> int:
    """Milliseconds of an ISO 8601 duration of days and smaller units. Raises ValueError."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        raise ValueError(f"'{text}' is no ISO 8601 duration such as PT1M")
    days, hours, minutes, seconds = (float(group or 0) for group in match.groups())
    return round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)


def write_duration(milliseconds: int | None) -> str:
    """The shortest form of a duration; None is without limit."""
    if milliseconds is None:
        return FOREVER
    seconds, rest = divmod(milliseconds, 1000)
    days, seconds = divmod(seconds, 86_400)
    hours, seconds = divmod(seconds, 3600)
    minutes, seconds = divmod(seconds, 60)
    time = "".join(f"{number}{unit}" for number, unit in ((hours, "H"), (minutes, "M")) if number)
    if seconds or rest:
        time += f"{seconds}.{rest:03d}".rstrip("0").rstrip(".") + "S"
    date = f"{days}D" if days else ""
    return f"P{date}T{time}" if time else f"P{date}" if date else "PT0S"


def read_flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"'{text}' is neither true nor false")
    return text.lower() == "true"


def _limit(text: str) -> int | None:
    milliseconds = read_duration(text)
    if milliseconds <= 0:
        raise ValueError("a time to live is longer than 0")
    return None if milliseconds >= _FOREVER_MS else milliseconds


def _between(read: Callable[[str], int], low: int, high: int) -> Callable[[str], int]:
    def checked(text: str) -> int:
        value = read(text)
        if not low <= value <= high:
            raise ValueError(f"'{text}' is outside the limits of the service")
        return value

    return checked


def _status(text: str) -> str:
    if text not in ("Active", "Disabled", "SendDisabled", "ReceiveDisabled"):
        raise ValueError(f"'{text}' is no status of an entity")
    return text


def _target(text: str) -> str | None:
    return text or None


_READERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "LockDuration": ("lock_ms", _between(read_duration, 1, MAX_LOCK_MS)),
    "MaxDeliveryCount": ("max_delivery_count", _between(int, 1, MAX_DELIVERY_COUNT)),
    "DefaultMessageTimeToLive": ("default_ttl_ms", _limit),
    "DeadLetteringOnMessageExpiration": ("dead_letter_on_expiration", read_flag),
    "RequiresSession": ("requires_session", read_flag),
    "RequiresDuplicateDetection": ("requires_duplicate_detection", read_flag),
    "DuplicateDetectionHistoryTimeWindow": ("duplicate_window_ms", _between(read_duration, 1, MAX_WINDOW_MS)),
    "EnablePartitioning": ("partitioned", read_flag),
    "MaxSizeInMegabytes": ("max_size_megabytes", _between(int, 1, MAX_SIZE_MEGABYTES)),
    "MaxMessageSizeInKilobytes": ("max_message_kilobytes", _between(int, 1, MAX_MESSAGE_KILOBYTES)),
    "Status": ("status", _status),
    "ForwardTo": ("forward_to", _target),
    "ForwardDeadLetteredMessagesTo": ("forward_dead_letters_to", _target),
}
_COMPUTED = frozenset(
    {
        "SizeInBytes",
        "MessageCount",
        "SubscriptionCount",
        "CreatedAt",
        "UpdatedAt",
        "AccessedAt",
        "CountDetails",
        "EntityAvailabilityStatus",
    }
)
_KEPT = frozenset(
    {
        "AutoDeleteOnIdle",
        "DeadLetteringOnFilterEvaluationExceptions",
        "EnableBatchedOperations",
        "EnableExpress",
        "EnableSubscriptionPartitioning",
        "FilteringMessagesBeforePublishing",
        "IsAnonymousAccessible",
        "SupportOrdering",
        "UserMetadata",
    }
)
"""Kept and returned; they change nothing here."""

FIXED = ("requires_session", "requires_duplicate_detection", "partitioned")
"""What an entity keeps for life."""


def describe(
    path: str, kind: Kind, properties: Mapping[str, str], *, base: Description | None = None, now_ms: int = 0
) -> Description:
    """A description from named properties, on top of ``base`` when an entity is updated.

    Raises ValueError for a value that the service would refuse, :class:`NotSupported` for what devstack leaves out.
    """
    _check_path(path, kind)
    values: dict[str, Any] = {} if base is None else dict(base)
    for optional in ("forward_to", "forward_dead_letters_to"):
        values.pop(optional, None)  # an update that does not name a target ends the forwarding
    values["extra"] = dict(values.get("extra", {}))
    for name, text in properties.items():
        _read_property(name, text, values)
    values.update(path=path, kind=kind, updated_ms=now_ms)
    if base is None:
        values["created_ms"] = now_ms
        if kind == "subscription":
            values["rules"] = (default_rule(),)
    elif any(values[field] != getattr(base, field) for field in FIXED):
        raise ValueError("sessions, duplicate detection and partitioning cannot be changed after creation")
    description = Description(**values)
    if description.forward_to is not None and (description.requires_session or kind == "topic"):
        raise ValueError("ForwardTo cannot be set on a topic or on an entity that requires sessions")
    return description


def _check_path(path: str, kind: Kind) -> None:
    name = path.rpartition("/")[2] if kind == "subscription" else path
    longest = MAX_SUBSCRIPTION_NAME if kind == "subscription" else MAX_NAME
    if len(name) > longest or _NAME.fullmatch(name) is None:
        raise ValueError(f"'{name}' cannot be a name: up to {longest} letters, digits, '.', '-', '_' and '/'")


def _read_property(name: str, text: str, values: dict[str, Any]) -> None:
    if name in _READERS:
        field, read = _READERS[name]
        try:
            values[field] = read(text)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    elif name in _KEPT:
        values["extra"][name] = text
    elif name not in _COMPUTED:
        raise NotSupported(f"the property {name} is not supported by devstack")


def written(description: Description) -> dict[str, str]:
    """The properties of an entity by their names, those that do not apply to its kind left out."""
    values = {
        "LockDuration": write_duration(description.lock_ms),
        "MaxSizeInMegabytes": str(description.max_size_megabytes),
        "RequiresDuplicateDetection": _flag(description.requires_duplicate_detection),
        "RequiresSession": _flag(description.requires_session),
        "DefaultMessageTimeToLive": write_duration(description.default_ttl_ms),
        "DeadLetteringOnMessageExpiration": _flag(description.dead_letter_on_expiration),
        "DuplicateDetectionHistoryTimeWindow": write_duration(description.duplicate_window_ms),
        "MaxDeliveryCount": str(description.max_delivery_count),
        "Status": description.status,
        "EnablePartitioning": _flag(description.partitioned),
        "EnableBatchedOperations": "true",
        "AutoDeleteOnIdle": FOREVER,
        "SupportOrdering": "true",
        "EnableExpress": "false",
        "IsAnonymousAccessible": "false",
        "FilteringMessagesBeforePublishing": "false",
        "EnableSubscriptionPartitioning": "false",
        "DeadLetteringOnFilterEvaluationExceptions": "true",
        "MaxMessageSizeInKilobytes": str(description.max_message_kilobytes),
        **({"ForwardTo": description.forward_to} if description.forward_to else {}),
        **(
            {"ForwardDeadLetteredMessagesTo": description.forward_dead_letters_to}
            if description.forward_dead_letters_to
            else {}
        ),
        **description.extra,
    }
    for name in _NOT_OF_KIND[description.kind]:
        values.pop(name, None)
    return values


_NOT_OF_KIND: dict[Kind, tuple[str, ...]] = {
    "queue": (
        "FilteringMessagesBeforePublishing",
        "EnableSubscriptionPartitioning",
        "DeadLetteringOnFilterEvaluationExceptions",
    ),
    "topic": (
        "LockDuration",
        "RequiresSession",
        "DeadLetteringOnMessageExpiration",
        "MaxDeliveryCount",
        "DeadLetteringOnFilterEvaluationExceptions",
    ),
    "subscription": (
        "MaxSizeInMegabytes",
        "RequiresDuplicateDetection",
        "DuplicateDetectionHistoryTimeWindow",
        "EnablePartitioning",
        "SupportOrdering",
        "EnableExpress",
        "IsAnonymousAccessible",
        "FilteringMessagesBeforePublishing",
        "EnableSubscriptionPartitioning",
        "MaxMessageSizeInKilobytes",
    ),
}


def _flag(value: bool) -> str:
    return "true" if value else "false"
