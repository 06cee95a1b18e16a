"""A setting that the app names and that is not there is found before the first function runs, and named.

Settings come from the environment; the settings file only fills in what the environment does not have, as
with ``func start``.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from devstack.local_settings import read_values
from devstack.service import CannotStart

_PLACEHOLDER = re.compile(r"%([^%]+)%")
_TIMESPAN = re.compile(r"(?:(\d+)\.)?(\d{1,2}):(\d{1,2})(?::(\d{1,2}(?:\.\d{1,7})?))?")


def apply_settings_file(file: Path) -> None:
    """Put the file's values into this process's environment; what is there already wins. Raises
    CannotStart.
    """
    for name, value in read_values(file).items():
        os.environ.setdefault(name, value)


def resolve(text: str, *, where: str) -> str:
    """Replace each ``%Name%`` by the setting. Raises CannotStart when there is no such setting."""

    def setting(match: re.Match[str]) -> str:
        value = os.environ.get(match.group(1))
        if value is None:
            raise CannotStart(
                f"functions: {where} uses %{match.group(1)}%; set {match.group(1)} in the settings"
            )
        return value

    return _PLACEHOLDER.sub(setting, text)


@dataclass(frozen=True)
class ServiceBusOptions:
    """``extensions.serviceBus`` of host.json, extension 5.x; times in seconds.

    https://learn.microsoft.com/azure/azure-functions/functions-bindings-service-bus#hostjson-settings
    """

    prefetch_count: int = 0
    auto_complete: bool = True
    max_lock_renewal: float = 300.0
    max_concurrent_calls: int = 16
    max_concurrent_sessions: int = 8
    max_batch_size: int = 1000
    session_idle_timeout: float = 60.0
    """The extension waits for the client's try timeout when the setting is missing: one minute."""


@dataclass(frozen=True)
class HostSettings:
    """What the host itself reads from host.json."""

    route_prefix: str = "api"
    service_bus: ServiceBusOptions = field(default_factory=ServiceBusOptions)


def read_host_json(app: Path) -> HostSettings:
    """Read the app's host.json; a missing file means the defaults. Raises CannotStart for one that is no
    use.
    """
    file = app / "host.json"
    if not file.exists():
        return HostSettings()
    try:
        content = json.loads(file.read_text(encoding="utf-8-sig"))
        extensions = content.get("extensions", {})
        service_bus = extensions.get("serviceBus", {})
        return HostSettings(
            route_prefix=str(extensions.get("http", {}).get("routePrefix", "api")).strip("/"),
            service_bus=_read_service_bus(service_bus),
        )
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise CannotStart(
            f"functions: cannot use {file}: {error}; mend it or take it from the repository"
        ) from error


def _read_service_bus(values: Mapping[str, Any]) -> ServiceBusOptions:
    defaults = ServiceBusOptions()
    return ServiceBusOptions(
        prefetch_count=int(values.get("prefetchCount", defaults.prefetch_count)),
        auto_complete=bool(values.get("autoCompleteMessages", defaults.auto_complete)),
        max_lock_renewal=_seconds(values, "maxAutoLockRenewalDuration", defaults.max_lock_renewal),
        max_concurrent_calls=_at_least_one(values, "maxConcurrentCalls", defaults.max_concurrent_calls),
        max_concurrent_sessions=_at_least_one(
            values, "maxConcurrentSessions", defaults.max_concurrent_sessions
        ),
        max_batch_size=_at_least_one(values, "maxMessageBatchSize", defaults.max_batch_size),
        session_idle_timeout=_seconds(values, "sessionIdleTimeout", defaults.session_idle_timeout),
    )


def _at_least_one(values: Mapping[str, Any], name: str, default: int) -> int:
    number = int(values.get(name, default))
    if number < 1:
        raise ValueError(f"{name} must be at least 1")
    return number


def _seconds(values: Mapping[str, Any], name: str, default: float) -> float:
    text = values.get(name)
    return default if text is None else parse_timespan(str(text), name)


def parse_timespan(text: str, name: str) -> float:
    """``[d.]hh:mm[:ss[.fff]]`` in seconds. Raises ValueError that names the setting."""
    match = _TIMESPAN.fullmatch(text.strip())
    if match is None:
        raise ValueError(f'{name} must be a time like "00:05:00", not "{text}"')
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return days * 86400 + hours * 3600 + minutes * 60 + seconds
