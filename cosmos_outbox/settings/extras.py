"""A package that is missing is named together with the extra that brings it, in one line.

This module imports only the standard library: the commands ask it before they import anything else.
"""

import sys
from collections.abc import Iterator
from importlib.util import find_spec

from cosmos_outbox.settings.errors import Misconfigured

CORE = {
    "azure.cosmos": "azure-cosmos",
    "azure.identity": "azure-identity",
    "aiohttp": "aiohttp",
    "pydantic": "pydantic",
    "cryptography": "cryptography",
    "rfc8785": "rfc8785",
    "opentelemetry.metrics": "opentelemetry-api",
}
"""Modules, each with the package that contains it: what a program needs that only writes."""

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
"""What each extra adds to that."""


def missing(modules: dict[str, str]) -> Iterator[str]:
    """The packages that are not installed."""
    return (package for module, package in modules.items() if not _is_there(module))


def needed(extra: str) -> None:
    """Returns if the packages of an extra are installed. Raises Misconfigured, which says what to install."""
    if absent := ", ".join(missing(EXTRAS[extra])):
        raise Misconfigured(
            f"{absent}: not installed; run {sys.executable} -m pip install 'cosmos-outbox[{extra}]'"
        )


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the parent of a dotted name
        return False
