"""What the host reads from host.json and from the settings, and what it says when they are no use."""

import json
import os
from pathlib import Path

import pytest

from devstack.connection_settings import Connection
from devstack.functions.connections import cosmos_connection, servicebus_connection
from devstack.functions.host_json import (
    FOR_EVER,
    HostSettings,
    ServiceBusOptions,
    parse_timespan,
    read_host_json,
)
from devstack.functions.settings import apply_settings_file, host_time_zone, is_disabled, resolve
from devstack.service import CannotStart


@pytest.mark.parametrize(
    ("settings", "zone"),
    [
        ({}, "UTC"),
        ({"TZ": "Europe/Berlin"}, "Europe/Berlin"),
        ({"WEBSITE_TIME_ZONE": "Asia/Tokyo"}, "Asia/Tokyo"),
        ({"TZ": "Missing/Land"}, "UTC"),
    ],
)
def test_the_hosts_time_zone_is_utc_unless_a_known_one_is_set(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], zone: str
) -> None:
    for name in ("TZ", "WEBSITE_TIME_ZONE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)

    assert str(host_time_zone()) == zone


def test_without_a_host_json_the_defaults_hold(tmp_path: Path) -> None:
    assert read_host_json(tmp_path) == HostSettings(
        route_prefix="api", function_timeout=1800, service_bus=ServiceBusOptions()
    )


def test_the_service_bus_extension_is_configured_in_host_json(tmp_path: Path) -> None:
    (tmp_path / "host.json").write_text(
        """{"version": "2.0", "extensions": {"http": {"routePrefix": ""}, "serviceBus": {
            "prefetchCount": 5, "autoCompleteMessages": false, "maxAutoLockRenewalDuration": "00:01:30",
            "maxConcurrentCalls": 3, "maxConcurrentSessions": 2, "maxConcurrentCallsPerSession": 4,
            "maxMessageBatchSize": 10, "sessionIdleTimeout": "00:00:00.5"}}}"""
    )

    settings = read_host_json(tmp_path)

    assert settings.route_prefix == ""
    assert settings.service_bus == ServiceBusOptions(5, False, 90.0, 3, 2, 4, 10, 0.5)


def test_the_environment_overrides_host_json_and_texts_are_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "host.json").write_text(
        """{"functionTimeout": "00:10:00", "extensions": {"ServiceBus": {
            "PrefetchCount": "5", "autoCompleteMessages": "False", "maxConcurrentSessions": 2}}}"""
    )
    monkeypatch.setenv("AzureFunctionsJobHost__extensions__serviceBus__maxConcurrentSessions", "7")
    monkeypatch.setenv("AzureFunctionsJobHost:extensions:serviceBus:maxConcurrentCalls", "9")
    monkeypatch.setenv("AzureFunctionsJobHost__functionTimeout", "00:00:30")
    monkeypatch.setenv("AzureFunctionsJobHost__extensions__http__routePrefix", "")

    settings = read_host_json(tmp_path)

    assert settings == HostSettings(
        function_timeout=30,
        service_bus=ServiceBusOptions(
            prefetch_count=5, auto_complete=False, max_concurrent_sessions=7, max_concurrent_calls=9
        ),
    )


@pytest.mark.parametrize(
    ("text", "seconds"), [("-1", FOR_EVER), ("00:05:00", 300), ("-1.00:00:00", FOR_EVER)]
)
def test_a_function_timeout(tmp_path: Path, text: str, seconds: float) -> None:
    (tmp_path / "host.json").write_text(json.dumps({"functionTimeout": text}))

    assert read_host_json(tmp_path).function_timeout == seconds


def test_locks_can_be_renewed_without_end(tmp_path: Path) -> None:
    (tmp_path / "host.json").write_text(
        """{"extensions": {"serviceBus": {"maxAutoLockRenewalDuration": "-00:00:00.0010000"}}}"""
    )

    assert read_host_json(tmp_path).service_bus.max_lock_renewal == FOR_EVER


def test_settings_that_are_not_applied_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "host.json").write_text(
        """{"retry": {"strategy": "fixedDelay"}, "extensions": {"serviceBus": {
            "messageHandlerOptions": {"autoComplete": false}, "minMessageBatchSize": 2}}}"""
    )
    read_host_json(tmp_path)

    logged = [record.getMessage() for record in caplog.records]
    assert [each.partition(":")[2].split(" ")[1] for each in logged] == [
        "extensions:servicebus:messagehandleroptions:autocomplete",
        "extensions:servicebus:minmessagebatchsize",
        "retry",
    ]


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"functionTimeout": "00:00:00"}',
        '{"functionTimeout": true}',
        '{"extensions": {"serviceBus": {"autoCompleteMessages": "yes"}}}',
        '{"extensions": {"serviceBus": {"autoCompleteMessages": 1}}}',
        '{"extensions": {"serviceBus": {"prefetchCount": 1.5}}}',
        '{"extensions": {"serviceBus": {"sessionIdleTimeout": "-00:00:01"}}}',
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
    ("text", "seconds"),
    [
        ("00:00:05", 5),
        ("01:02:03.5", 3723.5),
        ("1.00:00:00", 86400),
        ("00:05", 300),
        ("2", 172800),
        ("24:00:00", 24 * 86400),
        ("-00:00:01", -1),
    ],
)
def test_time_spans(text: str, seconds: float) -> None:
    assert parse_timespan(text, "x") == seconds


def test_names_in_percent_signs_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPIC", "order-events")

    assert resolve("a-%TOPIC%-b", where="here") == "a-order-events-b"
    with pytest.raises(CannotStart, match="here uses %MISSING%; set MISSING"):
        resolve("%MISSING%", where="here")


@pytest.mark.parametrize("text", ["", "x", "00:60:00", "00:00:60", "1:2:3:4:5", "25:00", "1.5"])
def test_no_time_spans(text: str) -> None:
    with pytest.raises(ValueError, match="x must be a time"):
        parse_timespan(text, "x")


def test_an_empty_variable_counts_as_unset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "settings.json").write_text('{"Values": {"TOPIC": "from-the-file", "OTHER": "x"}}')
    monkeypatch.setenv("TOPIC", "")
    monkeypatch.setenv("OTHER", "y")
    apply_settings_file(tmp_path / "settings.json")

    assert (os.environ["TOPIC"], os.environ["OTHER"]) == ("from-the-file", "y")
    monkeypatch.setenv("TOPIC", "")
    with pytest.raises(CannotStart, match="set TOPIC"):
        resolve("%TOPIC%", where="here")


@pytest.mark.parametrize(
    ("setting", "value", "disabled"),
    [
        ("AzureWebJobs.relay.Disabled", "1", True),
        ("AzureWebJobs.relay.Disabled", "true", True),
        ("AzureWebJobs_relay_Disabled", "True", True),
        ("AZUREWEBJOBS_RELAY_DISABLED", "true", True),
        ("AzureWebJobs.relay.Disabled", "0", False),
        ("AzureWebJobs.relay.Disabled", "yes", False),
        ("AzureWebJobs.relay.Disabled", "", False),
        ("AzureWebJobs.other.Disabled", "true", False),
    ],
)
def test_a_function_is_disabled_by_a_setting(
    monkeypatch: pytest.MonkeyPatch, setting: str, value: str, disabled: bool
) -> None:
    monkeypatch.setenv(setting, value)

    assert is_disabled("relay") == disabled


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
