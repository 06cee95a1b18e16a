"""Settings are read once, as a whole, and an error names the wrong setting."""

import json
from pathlib import Path

import pytest

from cosmos_outbox.cosmos.store.container import DEADLINE_SECONDS
from cosmos_outbox.settings.connections import Connection, credential_for
from cosmos_outbox.settings.environment import LEAST_SEND_SECONDS
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.settings.transports import servicebus_of
from infra.bootstrap import service as contact_service

LOCAL = {"COSMOS": "AccountEndpoint=http://c/;AccountKey=k", "SERVICEBUS": "Endpoint=sb://s"}
ROOT = Path(__file__).resolve().parents[2]


def test_connection_strings_are_enough() -> None:
    settings = contact_service.settings(LOCAL)
    assert settings.cosmos == Connection(connection_string="AccountEndpoint=http://c/;AccountKey=k")
    assert (settings.cosmos_database, settings.cosmos_container) == ("contacts", "contacts")
    assert servicebus_of(settings.transport).topic == "contact-events"
    assert servicebus_of(settings.transport).partitioned is False
    assert settings.event_ttl_seconds == 864_000


@pytest.mark.parametrize(
    ("text", "is_on"),
    [(None, False), ("", False), ("False", False), ("1", False), ("True", True), ("true", True)],
)
def test_the_platform_vouches_for_principals_only_where_it_says_so(text: str | None, is_on: bool) -> None:
    environment = LOCAL if text is None else LOCAL | {"WEBSITE_AUTH_ENABLED": text}
    assert contact_service.settings(environment).platform_authenticates is is_on


def test_an_address_is_used_with_an_identity() -> None:
    settings = contact_service.settings(
        {
            "COSMOS__accountEndpoint": "https://a.documents.azure.com",
            "SERVICEBUS__fullyQualifiedNamespace": "n.servicebus.windows.net",
            "SERVICEBUS__credential": "managedidentity",
            "SERVICEBUS__clientId": "11111111-2222-3333-4444-555555555555",
        }
    )
    assert settings.cosmos == Connection(address="https://a.documents.azure.com")
    assert servicebus_of(settings.transport).connection == Connection(
        address="n.servicebus.windows.net",
        client_id="11111111-2222-3333-4444-555555555555",
        managed_identity_only=True,
    )


def test_the_exact_name_beats_the_prefix() -> None:
    settings = contact_service.settings(LOCAL | {"COSMOS__accountEndpoint": "https://a"})
    assert settings.cosmos.connection_string == LOCAL["COSMOS"]


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({}, "COSMOS"),
        ({"COSMOS": "x"}, "SERVICEBUS__fullyQualifiedNamespace"),
        (LOCAL | {"EVENT_TTL_SECONDS": "0"}, "EVENT_TTL_SECONDS"),
        (LOCAL | {"EVENT_TTL_SECONDS": "-1"}, "EVENT_TTL_SECONDS"),
        (LOCAL | {"EVENT_TTL_SECONDS": "2147483648"}, "EVENT_TTL_SECONDS"),
        (LOCAL | {"EVENT_TTL_SECONDS": "ten days"}, "EVENT_TTL_SECONDS"),
        (LOCAL | {"IDEMPOTENCY_TTL_SECONDS": "59"}, "IDEMPOTENCY_TTL_SECONDS"),
        (LOCAL | {"SERVICEBUS_TOPIC_PARTITIONED": "maybe"}, "SERVICEBUS_TOPIC_PARTITIONED"),
        (LOCAL | {"RELAY_MAX_ITEMS": "0"}, "RELAY_MAX_ITEMS is '0': set it to a number from 1 to 5000"),
        (LOCAL | {"RELAY_POLL_DELAY_MS": "0.5"}, "RELAY_POLL_DELAY_MS"),
        (LOCAL | {"RELAY_SENDERS": "101"}, "RELAY_SENDERS"),
        (LOCAL | {"SERVICEBUS_SESSIONS": "0"}, "from 1 to 1000, or to aggregate for a session for each"),
        (LOCAL | {"RELAY_SEND_SECONDS": "121"}, "RELAY_SEND_SECONDS"),
        (LOCAL | {"RELAY_SEND_SECONDS": "4"}, "RELAY_SEND_SECONDS is '4': set it to a number from 5 to 120"),
        (LOCAL | {"RELAY_SEND_SECONDS": "0"}, "RELAY_SEND_SECONDS"),
        (LOCAL | {"RELAY_LEASE_PREFIX": "a/b"}, "RELAY_LEASE_PREFIX"),
        (
            {"COSMOS__accountEndpoint": "https://a", "COSMOS__credential": "sas", "SERVICEBUS": "x"},
            "COSMOS__credential",
        ),
    ],
)
def test_a_missing_or_wrong_setting_is_named(environment: dict[str, str], named: str) -> None:
    with pytest.raises(Misconfigured, match=named):
        contact_service.settings(environment)


@pytest.mark.parametrize(("given", "sessions"), [("", 32), ("8", 8), ("aggregate", None)])
def test_events_are_sent_in_so_many_sessions(given: str, sessions: int | None) -> None:
    environment = LOCAL | ({"SERVICEBUS_SESSIONS": given} if given else {})
    assert servicebus_of(contact_service.settings(environment).transport).sessions == sessions


def test_the_least_sending_time_exceeds_the_deadline_of_a_store_call() -> None:
    assert DEADLINE_SECONDS < LEAST_SEND_SECONDS


def test_secrets_do_not_show() -> None:
    assert "AccountKey" not in repr(contact_service.settings(LOCAL))


def test_the_sample_settings_can_be_loaded() -> None:
    values = json.loads((ROOT / "local.settings.sample.json").read_text())["Values"]
    assert servicebus_of(contact_service.settings(values).transport).topic == "contact-events"


async def test_a_connection_string_needs_no_credential_and_an_address_gets_one() -> None:
    assert credential_for(Connection(connection_string="x")) is None
    for connection in (
        Connection(address="https://a"),
        Connection(address="https://a", managed_identity_only=True),
    ):
        credential = credential_for(connection)
        assert credential is not None
        await credential.close()


@pytest.mark.parametrize(
    ("text", "base"),
    [
        ("", None),
        ("https://schemas.example.com/events", "https://schemas.example.com/events"),
        ("https://schemas.example.com/events/", "https://schemas.example.com/events"),
        ("urn:uuid:6e8bc430-9c3a-11d9-9669-0800200c9a66", "urn:uuid:6e8bc430-9c3a-11d9-9669-0800200c9a66"),
    ],
)
def test_the_place_of_the_schemas_is_an_absolute_uri_or_none(text: str, base: str | None) -> None:
    assert contact_service.settings(LOCAL | {"EVENT_SCHEMAS": text}).event_schemas == base


@pytest.mark.parametrize("text", ["/events", "schemas", "https://a b", "https://a/#x", "https:"])
def test_what_is_no_absolute_uri_is_no_place_for_schemas(text: str) -> None:
    with pytest.raises(Misconfigured, match="EVENT_SCHEMAS"):
        contact_service.settings(LOCAL | {"EVENT_SCHEMAS": text})
