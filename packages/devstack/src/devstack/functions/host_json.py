"""A value in host.json means what it means to .NET's configuration, or it is logged at the start.

Names are compared without regard to case, any value may be a text, and the settings ``AzureFunctionsJobHost__...`` beat
the file: ``AzureFunctionsJobHost__extensions__serviceBus__maxConcurrentSessions``.
"""

import json
import logging
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from devstack.service import CannotStart

OVERRIDE = "azurefunctionsjobhost:"
FOR_EVER = math.inf
DEFAULT_FUNCTION_TIMEOUT = 1800.0
"""Of every plan but the old Consumption plan, which has 5 minutes."""

_DAYS = re.compile(r"\d+")
_TIMESPAN = re.compile(r"(?:(\d+)\.)?(\d+):(\d+)(?::(\d+(?:\.\d{1,7})?))?")
_DAY, _HOUR, _MINUTE = 86400.0, 3600.0, 60.0
_SERVICE_BUS, _QUEUES = "extensions:servicebus", "extensions:queues"
_NOT_HERE = {
    "clientretryoptions",
    "enablecrossentitytransactions",
    "jsonserializersettings",
    "maxbatchwaittime",
    "minmessagebatchsize",
    "transporttype",
    "webproxy",
}
"""Of the Service Bus extension, and read by nothing here."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServiceBusOptions:
    """``extensions.serviceBus``, extension 5.x; times in seconds.

    https://learn.microsoft.com/azure/azure-functions/functions-bindings-service-bus#hostjson-settings
    """

    prefetch_count: int = 0
    auto_complete: bool = True
    max_lock_renewal: float = 300.0
    """:data:`FOR_EVER`: as long as the function runs."""
    max_concurrent_calls: int = 16
    max_concurrent_sessions: int = 8
    max_concurrent_calls_per_session: int = 1
    max_batch_size: int = 1000
    session_idle_timeout: float = 60.0
    """The extension waits for the client's try timeout when the setting is missing: one minute."""


@dataclass(frozen=True)
class QueuesOptions:
    """``extensions.queues``; times in seconds.

    https://learn.microsoft.com/azure/azure-functions/functions-bindings-storage-queue#hostjson-settings
    """

    batch_size: int = 16
    new_batch_threshold: int = 8
    """Half of the batch unless it is set; on several cores the extension takes as many halves."""
    max_polling_interval: float = 2.0
    """A minute in Azure; the extension takes this where it knows that it runs on a laptop."""
    max_dequeue_count: int = 5
    visibility_timeout: float = 0.0
    """How long a message that failed is out of sight."""
    base64: bool = True


@dataclass(frozen=True)
class HostSettings:
    """What the host itself reads."""

    route_prefix: str = "api"
    function_timeout: float = DEFAULT_FUNCTION_TIMEOUT
    """In seconds; :data:`FOR_EVER`: none."""
    hsts: str | None = None
    """The header ``Strict-Transport-Security``; None: it is not sent."""
    service_bus: ServiceBusOptions = field(default_factory=ServiceBusOptions)
    queues: QueuesOptions = field(default_factory=QueuesOptions)


class _Configuration:
    """All values by their path, such as ``extensions:servicebus:prefetchcount``."""

    def __init__(self, content: Any, environment: Mapping[str, str]) -> None:
        if not isinstance(content, dict):
            raise TypeError("it is no JSON object")
        self.values = dict(_flat(content))
        for variable, value in environment.items():
            path = variable.replace("__", ":").lower()
            if path.startswith(OVERRIDE) and value:
                self.values[path.removeprefix(OVERRIDE)] = value

    def text(self, path: str, default: str) -> str:
        value = self.values.get(path)
        return default if value is None else str(value)

    def boolean(self, path: str, *, default: bool) -> bool:
        text = self.text(path, str(default)).strip().lower()
        if text not in ("true", "false"):
            raise ValueError(f'{path} is "{text}"; set it to true or false')
        return text == "true"

    def number(self, path: str, default: int, *, least: int) -> int:
        text = self.text(path, str(default)).strip()
        if not re.fullmatch(r"[+-]?\d+", text) or int(text) < least:
            raise ValueError(f'{path} is "{text}"; set it to a whole number from {least} up')
        return int(text)

    def seconds(self, path: str, default: float) -> float:
        """Of a time span that is not negative."""
        value = self.values.get(path)
        seconds = default if value is None else parse_timespan(str(value), path)
        if seconds < 0:
            raise ValueError(f'{path} is "{value}"; set it to a time that is not negative')
        return seconds


def _flat(content: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(content, Mapping):
        for name, value in content.items():
            yield from _flat(value, f"{path}:{name.lower()}" if path else name.lower())
    elif isinstance(content, list):
        for index, value in enumerate(content):
            yield from _flat(value, f"{path}:{index}")
    else:
        yield path, content


def read_host_json(app: Path) -> HostSettings:
    """Read the app's host.json, if there is one, and what overrides it. Raises CannotStart for what is no use."""
    file = app / "host.json"
    try:
        content = json.loads(file.read_text(encoding="utf-8-sig")) if file.exists() else {}
        configuration = _Configuration(content, os.environ)
        settings = HostSettings(
            route_prefix=configuration.text("extensions:http:routeprefix", "api"),
            function_timeout=_function_timeout(configuration),
            hsts=_hsts(configuration),
            service_bus=_service_bus(configuration),
            queues=_queues(configuration),
        )
    except (OSError, ValueError, TypeError) as error:
        raise CannotStart(
            f"functions: cannot use {file}: {error}; mend it, or the AzureFunctionsJobHost__... setting that beats it"
        ) from error
    _log_what_is_ignored(configuration)
    return settings


def _function_timeout(configuration: _Configuration) -> float:
    value = configuration.values.get("functiontimeout")
    if value is None:
        return DEFAULT_FUNCTION_TIMEOUT
    seconds = parse_timespan(str(value), "functionTimeout")
    if seconds == -_DAY:
        # It is written as "-1", which .NET reads as minus one day.
        return FOR_EVER
    if seconds < 1:
        raise ValueError(f'functionTimeout is "{value}"; set it to a time from 1 second up, or -1 for none')
    return seconds


def _hsts(configuration: _Configuration) -> str | None:
    path = "extensions:http:hsts"
    if not configuration.boolean(f"{path}:isenabled", default=False):
        return None
    header = [f"max-age={configuration.seconds(f'{path}:maxage', 30 * _DAY):.0f}"]
    header += [
        name
        for name in ("includeSubDomains", "preload")
        if configuration.boolean(f"{path}:{name.lower()}", default=False)
    ]
    return "; ".join(header)


def _service_bus(configuration: _Configuration) -> ServiceBusOptions:
    defaults = ServiceBusOptions()

    def number(name: str, default: int, least: int = 1) -> int:
        return configuration.number(f"{_SERVICE_BUS}:{name}", default, least=least)

    return ServiceBusOptions(
        prefetch_count=number("prefetchcount", defaults.prefetch_count, 0),
        auto_complete=configuration.boolean(
            f"{_SERVICE_BUS}:autocompletemessages", default=defaults.auto_complete
        ),
        max_lock_renewal=_max_lock_renewal(configuration, defaults.max_lock_renewal),
        max_concurrent_calls=number("maxconcurrentcalls", defaults.max_concurrent_calls),
        max_concurrent_sessions=number("maxconcurrentsessions", defaults.max_concurrent_sessions),
        max_concurrent_calls_per_session=number(
            "maxconcurrentcallspersession", defaults.max_concurrent_calls_per_session
        ),
        max_batch_size=number("maxmessagebatchsize", defaults.max_batch_size),
        session_idle_timeout=configuration.seconds(
            f"{_SERVICE_BUS}:sessionidletimeout", defaults.session_idle_timeout
        ),
    )


def _queues(configuration: _Configuration) -> QueuesOptions:
    defaults = QueuesOptions()
    batch = configuration.number(f"{_QUEUES}:batchsize", defaults.batch_size, least=1)
    if batch > 32:
        raise ValueError(f"{_QUEUES}:batchsize is {batch}; set it to a number from 1 to 32")
    encoding = configuration.text(f"{_QUEUES}:messageencoding", "base64").strip().lower()
    if encoding not in ("base64", "none"):
        raise ValueError(f'{_QUEUES}:messageencoding is "{encoding}"; set it to base64 or none')
    return QueuesOptions(
        batch_size=batch,
        new_batch_threshold=configuration.number(f"{_QUEUES}:newbatchthreshold", batch // 2, least=0),
        max_polling_interval=configuration.seconds(
            f"{_QUEUES}:maxpollinginterval", defaults.max_polling_interval
        ),
        max_dequeue_count=configuration.number(
            f"{_QUEUES}:maxdequeuecount", defaults.max_dequeue_count, least=1
        ),
        visibility_timeout=configuration.seconds(f"{_QUEUES}:visibilitytimeout", defaults.visibility_timeout),
        base64=encoding == "base64",
    )


def _max_lock_renewal(configuration: _Configuration, default: float) -> float:
    path = f"{_SERVICE_BUS}:maxautolockrenewalduration"
    value = configuration.values.get(path)
    if value is not None and parse_timespan(str(value), path) == -0.001:
        # Timeout.InfiniteTimeSpan of .NET.
        return FOR_EVER
    return configuration.seconds(path, default)


def _log_what_is_ignored(configuration: _Configuration) -> None:
    known = {name.replace("_", "") for name in ServiceBusOptions.__dataclass_fields__}
    known |= {"autocompletemessages", "maxautolockrenewalduration", "maxmessagebatchsize"}
    for path in configuration.values:
        if path.startswith(f"{_SERVICE_BUS}:"):
            name = path.removeprefix(f"{_SERVICE_BUS}:").partition(":")[0]
            if name in _NOT_HERE:
                _log.warning("host.json: %s is not applied by devstack", path)
            elif name not in known:
                _log.warning("host.json: %s is no setting of the extension 5.x and does nothing", path)
    if "retry:strategy" in configuration.values:
        _log.warning("host.json: retry is not applied by devstack; write @app.retry(...) at the function")


def parse_timespan(text: str, name: str) -> float:
    """``[-]d`` or ``[-][d.]hh:mm[:ss[.fff]]`` in seconds. Raises ValueError that names the setting.

    As in .NET, a number alone is days, and 24:00:00 is 24 days: hours end at 23.
    """
    stripped = text.strip()
    sign, unsigned = (-1.0, stripped[1:]) if stripped.startswith("-") else (1.0, stripped)
    if _DAYS.fullmatch(unsigned):
        return sign * float(unsigned) * _DAY
    if match := _TIMESPAN.fullmatch(unsigned):
        days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
        if hours > 23 and match[1] is None and match[4] and "." not in match[4]:
            days, hours, minutes, seconds = hours, minutes, seconds, 0.0
        if hours < 24 and minutes < 60 and seconds < 60:
            return sign * (days * _DAY + hours * _HOUR + minutes * _MINUTE + seconds)
    raise ValueError(f'{name} must be a time like "00:05:00", not "{text}"')
