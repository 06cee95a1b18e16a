"""What the host reads from host.json and from the settings, and what it says when they are no use."""

from pathlib import Path

import pytest

from devstack.connection_settings import Connection
from devstack.functions.connections import cosmos_connection, servicebus_connection
from devstack.functions.settings import (
    HostSettings,
    ServiceBusOptions,
    parse_timespan,
    read_host_json,
    resolve,
)
from devstack.service import CannotStart


def test_without_a_host_json_the_defaults_hold(tmp_path: Path) -> None:
    assert read_host_json(tmp_path) == HostSettings(route_prefix="api", service_bus=ServiceBusOptions())


def test_the_service_bus_extension_is_configured_in_host_json(tmp_path: Path) -> None:
    (tmp_path / "host.json").write_text(
        """{"version": "2.0", "extensions": {"http": {"routePrefix": ""}, "serviceBus": {
            "prefetchCount": 5, "autoCompleteMessages": false, "maxAutoLockRenewalDuration": "00:01:30",
            "maxConcurrentCalls": 3, "maxConcurrentSessions": 2, "maxMessageBatchSize": 10,
            "sessionIdleTimeout": "00:00:00.5"}}}"""
    )

    settings = read_host_json(tmp_path)

    assert settings.route_prefix == ""
    assert settings.service_bus == ServiceBusOptions(5, False, 90.0, 3, 2, 10, 0.5)


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"extensions": {"serviceBus": {"maxConcurrentCalls": 0}}}',
        '{"extensions": {"serviceBus": {"sessionIdleTimeout": "soon"}}}',
    ],
)
def test_a_host_json_that_cannot_be_used_is_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "host.json").write_text(content)

    with pytest.raises(CannotStart, match=r"cannot use .*host\.json") as refused:
        read_host_json(tmp_path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "seconds"), [("00:00:05", 5), ("01:02:03.5", 3723.5), ("1.00:00:00", 86400), ("00:05", 300)]
)
def test_time_spans(text: str, seconds: float) -> None:
    assert parse_timespan(text, "x") == seconds


def test_names_in_percent_signs_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPIC", "contact-events")

    assert resolve("a-%TOPIC%-b", where="here") == "a-contact-events-b"
    with pytest.raises(CannotStart, match="here uses %MISSING%; set MISSING"):
        resolve("%MISSING%", where="here")


def test_a_connection_string_beats_the_identity_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSMOS__accountEndpoint", "https://x.documents.azure.com/")
    monkeypatch.setenv("COSMOS", "AccountEndpoint=...")

    assert cosmos_connection("COSMOS", where="here") == Connection(
        "COSMOS", connection_string="AccountEndpoint=..."
    )


def test_the_identity_form_names_the_address_and_the_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICEBUS__fullyQualifiedNamespace", "x.servicebus.windows.net")
    monkeypatch.setenv("SERVICEBUS__credential", "managedidentity")
    monkeypatch.setenv("SERVICEBUS__clientId", "the-client")

    assert servicebus_connection("SERVICEBUS", where="here") == Connection(
        "SERVICEBUS", address="x.servicebus.windows.net", managed_identity=True, client_id="the-client"
    )


def test_a_connection_that_is_not_set_is_named() -> None:
    with pytest.raises(
        CannotStart, match="here uses the connection COSMOS; set COSMOS or COSMOS__accountEndpoint"
    ):
        cosmos_connection("COSMOS", where="here")
