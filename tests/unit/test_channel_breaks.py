"""What of a new AsyncAPI document breaks who reads by the old one: headers, address, sessions, channels."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cosmos_outbox.cli import schemas as command
from cosmos_outbox.contracts.channels import channel_breaks
from cosmos_outbox.contracts.release import compare, contract, write
from tests.support.paths import ROOT
from tests.unit.test_release_contract import PARCELS

OLD: dict[str, Any] = {
    "asyncapi": "3.0.0",
    "defaultContentType": "application/json",
    "servers": {"serviceBus": {"host": "{namespace}.servicebus.windows.net", "protocol": "amqps"}},
    "channels": {
        "events": {
            "address": "parcel-events",
            "x-service-bus": {"requiresSession": True, "sessionOf": "a bucket"},
            "messages": {
                "Sent": {"$ref": "#/components/messages/Sent"},
                "Moved": {"$ref": "#/components/messages/Moved"},
            },
        }
    },
    "components": {
        "messages": {
            "Sent": {"traits": [{"$ref": "#/components/messageTraits/event"}]},
            "Moved": {"traits": [{"$ref": "#/components/messageTraits/event"}]},
        },
        "messageTraits": {
            "event": {
                "headers": {"$ref": "#/components/schemas/headers"},
                "x-service-bus-properties": {
                    "type": "object",
                    "properties": {"SessionId": {"type": "string"}},
                    "required": ["SessionId"],
                },
            }
        },
        "schemas": {
            "headers": {
                "type": "object",
                "properties": {
                    "sequence": {"type": "integer", "minimum": 1},
                    "aggregateType": {"type": "string"},
                    "specversion": {"type": "string", "const": "1.0"},
                },
                "required": ["aggregateType"],
            }
        },
    },
}


def at(path: str, value: Any = None, *, gone: bool = False) -> Callable[[dict[str, Any]], None]:
    """A change of the document: at this place another value, or none."""

    def change(document: dict[str, Any]) -> None:
        *way, last = path.split("/")
        for name in way:
            document = document[name]
        if gone:
            del document[last]
        else:
            document[last] = value

    return change


HEADERS = "components/schemas/headers"
TRAIT = "components/messageTraits/event"
CHANNEL = "channels/events"

BREAKS = {
    "a header is gone": (
        at(f"{HEADERS}/properties/sequence", gone=True),
        ["Moved: headers.sequence is gone (removed)"],
    ),
    "a header has another type": (
        at(f"{HEADERS}/properties/sequence", {"type": "string"}),
        ["Moved: headers.sequence may be string now, and was integer (other-type)"],
    ),
    "a header may be missing": (
        at(f"{HEADERS}/required", []),
        ["Moved: headers.aggregateType may be missing now (may-be-missing)"],
    ),
    "a header has another value": (
        at(f"{HEADERS}/properties/specversion", {"type": "string", "const": "2.0"}),
        ['Moved: headers.specversion may be "2.0" now (new-value)'],
    ),
    "a header's limit is wider": (
        at(f"{HEADERS}/properties/sequence", {"type": "integer", "minimum": 0}),
        ["Moved: headers.sequence: minimum 1 is 0 now (wider)"],
    ),
    "one message has other headers": (
        at(
            "components/messages/Sent/headers",
            {"type": "object", "properties": {"aggregateType": {"type": "string"}}},
        ),
        [
            "Sent: headers.sequence is gone (removed)",
            "Sent: headers.aggregateType may be missing now (may-be-missing)",
            "Sent: headers.specversion is gone (removed)",
        ],
    ),
    "no headers are told": (
        at(f"{TRAIT}/headers", gone=True),
        [
            "Moved: headers.sequence is gone (removed)",
            "Moved: headers.aggregateType is gone (removed)",
            "Moved: headers.specversion is gone (removed)",
        ],
    ),
    "a message has no session": (
        at(f"{TRAIT}/x-service-bus-properties/required", []),
        ["Moved: properties.SessionId may be missing now (may-be-missing)"],
    ),
    "bodies are written otherwise": (
        at("defaultContentType", "application/xml"),
        ['Moved: the content type is "application/xml" now, and was "application/json" (content)'],
    ),
    "the topic has another name": (
        at(f"{CHANNEL}/address", "parcels"),
        ['channel events: its address is "parcels" now, and was "parcel-events" (address)'],
    ),
    "the channel is gone": (at(CHANNEL, gone=True), ["channel events is gone (address)"]),
    "a session is of something else": (
        at(f"{CHANNEL}/x-service-bus/sessionOf", "a customer"),
        ['channel events: sessionOf is "a customer" now, and was "a bucket" (broker)'],
    ),
    "subscriptions need no session": (
        at(f"{CHANNEL}/x-service-bus", gone=True),
        [
            "channel events: requiresSession is null now, and was true (broker)",
            'channel events: sessionOf is null now, and was "a bucket" (broker)',
        ],
    ),
    "another protocol": (
        at("servers/serviceBus/protocol", "kafka"),
        ['server serviceBus: protocol is "kafka" now, and was "amqps" (broker)'],
    ),
}


@pytest.mark.parametrize("name", BREAKS)
def test_what_breaks_a_reader_is_told(name: str) -> None:
    change, told = BREAKS[name]
    new = copy.deepcopy(OLD)
    change(new)
    assert channel_breaks(OLD, new) == told


def test_an_event_that_goes_to_another_channel_breaks_its_readers() -> None:
    new = copy.deepcopy(OLD)
    del new["channels"]["events"]["messages"]["Moved"]
    new["channels"]["others"] = {"address": "others", "messages": {"Moved": {}}}
    assert channel_breaks(OLD, new) == ["Moved is in another channel than events (moved)"]


@pytest.mark.parametrize(
    "change",
    [
        at("info", {"title": "other words"}),
        at(f"{CHANNEL}/description", "other words"),
        at(f"{HEADERS}/properties/more", {"type": "string"}),
        at(f"{HEADERS}/required", ["aggregateType", "sequence"]),
        at(f"{HEADERS}/properties/sequence", {"type": "integer", "minimum": 1, "description": "its place"}),
        at(f"{CHANNEL}/x-service-bus/more", True),
        at(f"{CHANNEL}/messages/New", {"$ref": "#/components/messages/Sent"}),
        at("components/messages/Moved/headers", {"$ref": "#/components/schemas/headers"}),
        at("channels/others", {"address": "others"}),
    ],
)
def test_what_a_reader_can_ignore_breaks_nobody(change: Callable[[dict[str, Any]], None]) -> None:
    new = copy.deepcopy(OLD)
    change(new)
    assert channel_breaks(OLD, new) == []


def test_an_address_that_was_not_told_can_be_told() -> None:
    old, new = copy.deepcopy(OLD), copy.deepcopy(OLD)
    old["channels"]["events"] |= {"address": "{topic}", "parameters": {"topic": {}}}
    assert channel_breaks(old, new) == []
    assert channel_breaks(new, old) == [
        'channel events: its address is "{topic}" now, and was "parcel-events" (address)'
    ]


def test_a_reference_that_leads_nowhere_is_an_error() -> None:
    new = copy.deepcopy(OLD)
    del new["components"]["schemas"]["headers"]
    with pytest.raises(ValueError, match="leads nowhere"):
        channel_breaks(OLD, new)


def test_the_command_stops_at_a_header_that_is_gone_and_needs_the_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, contract(PARCELS))
    assert compare(tmp_path, contract(PARCELS)).breaks == []
    file = tmp_path / "asyncapi.json"
    told = json.loads(file.read_text())
    told["components"]["schemas"]["applicationProperties"]["properties"]["tenant"] = {"type": "string"}
    file.write_text(json.dumps(told))
    arguments = [str(tmp_path), "--service", "tests.unit.test_release_contract.PARCELS"]
    assert command.main(arguments, {}) == 1
    assert "headers.tenant is gone (removed)" in capsys.readouterr().err
    assert "tenant" in file.read_text()
    file.unlink()
    assert command.main(["--check", *arguments], {}) == 2
    assert "no asyncapi.json to compare with" in capsys.readouterr().err


def test_the_contacts_document_tells_what_subscriptions_must_be_like() -> None:
    told = json.loads((ROOT / "docs" / "use" / "events" / "asyncapi.json").read_text())
    assert told["channels"]["events"]["x-service-bus"]["requiresSession"] is True
