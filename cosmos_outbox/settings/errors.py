"""Every error whose cause is outside the code: a setting, the deployment, or a request.

::

    InfraError
    ├── Misconfigured             a setting or the deployment is missing or wrong
    ├── NotForwardedYet           the relay has not forwarded what must be forwarded first
    ├── Overloaded                cosmos_outbox/operations/shedding.py: the relay is too far behind to take a change
    ├── InspectionError           cosmos_outbox/settings/errors.py: a deployment cannot be inspected
    └── RequestError              cosmos_outbox/http/problems.py: an HTTP request is wrong

The errors of each SDK become ours in one module: ``cosmos_outbox/cosmos/store/errors.py`` and
``cosmos_outbox/servicebus/errors.py``.
"""

import sys
from collections.abc import Iterator
from importlib.util import find_spec


class InfraError(Exception):
    """Base of every error that an adapter raises on purpose."""


class Misconfigured(InfraError):
    """A setting or the deployment is missing or wrong; the message names the setting and a right value."""


class NotForwardedYet(InfraError):
    """The relay has not forwarded all events that it must have forwarded first.

    Events cannot be published a second time before the first.
    """


class Overloaded(InfraError):
    """The relay is too far behind to take a change; nothing was stored."""

    def __init__(self, message: str, *, retry_after_seconds: float) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


CORE = {
    "azure.cosmos": "azure-cosmos",
    "azure.identity": "azure-identity",
    "aiohttp": "aiohttp",
    "pydantic": "pydantic",
    "cryptography": "cryptography",
    "rfc8785": "rfc8785",
    "opentelemetry.metrics": "opentelemetry-api",
}
"""The modules that a program needs that only writes, each with the package that contains it."""

_SERVICEBUS = {"azure.servicebus": "azure-servicebus", "certifi": "certifi"}
_RELAY = {"cosmos_changefeed": "cosmos-changefeed"}
_STORAGEQUEUE = {"azure.storage.queue": "azure-storage-queue"}
EXTRAS = {
    "servicebus": _SERVICEBUS,
    "relay": _RELAY,
    "functions": {**_RELAY, "azure.functions": "azure-functions"},
    "webhook": {"standardwebhooks": "standardwebhooks"},
    "storagequeue": _STORAGEQUEUE,
    "fastapi": {"fastapi": "fastapi"},
    "docs": {"fastapi_swagger": "fastapi-swagger"},
    "testing": {**_SERVICEBUS, **_RELAY, "devstack": "devstack"},
    "telemetry": {
        "opentelemetry.sdk": "opentelemetry-sdk",
        "azure.monitor.opentelemetry.exporter": "azure-monitor-opentelemetry-exporter",
        "opentelemetry.exporter.otlp.proto.http": "opentelemetry-exporter-otlp-proto-http",
    },
    "prometheus": {
        "opentelemetry.sdk": "opentelemetry-sdk",
        "opentelemetry.exporter.prometheus": "opentelemetry-exporter-prometheus",
        "prometheus_client": "prometheus-client",
    },
}
"""The modules that each extra adds."""


def missing(modules: dict[str, str]) -> Iterator[str]:
    """Yields the packages that are not installed."""
    return (package for module, package in modules.items() if not _is_there(module))


def needed(extra: str) -> None:
    """Returns if the packages of an extra are installed. Raises Misconfigured, which names what to install.

    A publisher of the service's own, which is no extra, needs what the service says.
    """
    if absent := ", ".join(missing(EXTRAS.get(extra, {}))):
        raise Misconfigured(
            f"{absent}: not installed; run {sys.executable} -m pip install 'cosmos-outbox[{extra}]'"
        )


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the parent of a dotted name
        return False


_LONGEST_LINE = 300


class InspectionError(InfraError):
    """Base of the errors that end an inspection."""


class Denied(InspectionError):
    """The service knows the caller and refuses the call; the text comes from the service."""


class CannotCheck(InspectionError):
    """The service's answer shows nothing about the deployment; the text has the reason."""


class IgnoresConditions(InspectionError):
    """The store carries out a batch whose If-Match does not hold, as Microsoft's Linux emulator does."""


class UnusableConnection(CannotCheck):
    """The SDK refuses the connection string or the address in the settings."""


def first_line(error: Exception) -> str:
    """Returns the first line of the service's own message: it names what is missing, and holds no key."""
    lines = str(getattr(error, "message", None) or error).strip().splitlines() or [type(error).__name__]
    return lines[0][:_LONGEST_LINE].rstrip(" .")
