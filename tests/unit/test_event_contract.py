"""docs/use/events/ says what subscribers get: real messages fit the schemas, in this version and the next one."""

import json
from typing import Any, ClassVar, Literal

import pytest
from jsonschema import Draft7Validator, Draft202012Validator

from cosmos_outbox.contracts.schemas import Kind, events_of, file_name, schema
from cosmos_outbox.cosmos.aggregates.documents import DIGEST, digest, event_item, is_as_committed
from cosmos_outbox.cosmos.relay.parking_lot import CosmosParkingLot
from cosmos_outbox.cosmos.relay.relay import Relay
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.outbox.publisher import CloudEvents
from cosmos_outbox.servicebus.message import message_from_event
from domain import events
from domain.values import Name
from infra.bootstrap import DIRECTORY
from infra.bootstrap import service as contact_service
from outbox_simulation.engine.bus_publisher import BusPublisher
from tests.support.contacts import LATER, ORIGIN, a_stored_contact
from tests.support.feed import EVENTS
from tests.support.memory import committed
from tests.support.reading import reader_of
from tests.unit.test_documents import CONTACT_ITEM, EVENT_ITEM
from tools.events import samples
from tools.events.__main__ import FOLDER, files

KINDS = [*events_of(contact_service)]
KEPT = {file.name: json.loads(file.read_text()) for file in (FOLDER / "schemas").glob("*.json")}
READER = reader_of(DIRECTORY)
ASYNCAPI = json.loads((FOLDER / "asyncapi.json").read_text())
MESSAGES = {str(message.subject): message for message in samples.messages()}

BASE = {"id", "action", "sequence", "createdAt", "contactId"}
PROMISED = {
    ("ContactCreatedEvent", 1): BASE | {"contact"},
    ("ContactNameUpdatedEvent", 1): BASE | {"name"},
    ("ContactEmailUpdatedEvent", 1): BASE | {"email"},
    ("ContactDescriptionUpdatedEvent", 1): BASE | {"description"},
    ("ContactCompanyUpdatedEvent", 1): BASE | {"company"},
    ("ContactDeletedEvent", 1): BASE | {"deletedAt"},
    ("EventDiscarded", 1): {"id", "action", "createdAt", "aggregateType", "aggregateId"},
}
"""What each version promises. Never change a line: raise the event's schema_version, and add one."""


def valid(document: Any, reported: dict[str, Any]) -> bool:
    return Draft202012Validator(reported, format_checker=Draft202012Validator.FORMAT_CHECKER).is_valid(
        document
    )


def name_of(kind: Kind) -> str:
    return kind.__name__


def body(kind: Kind) -> dict[str, Any]:
    return samples.body(MESSAGES[kind.__name__])


def test_the_kept_files_are_what_the_code_says() -> None:
    kept = {name: (FOLDER / name).read_text() for name in files() if (FOLDER / name).exists()}
    assert kept == files(), (
        "docs/use/events/ is old: run .venv/bin/python -m tools.events, and commit its files"
    )


@pytest.mark.parametrize("name", KEPT)
def test_a_schema_is_valid_and_uses_only_what_asyncapi_tools_read_too(name: str) -> None:
    """AsyncAPI 3.0 reads a superset of draft 7; a reference into $defs is a plain JSON pointer there."""
    Draft202012Validator.check_schema(KEPT[name])
    Draft7Validator.check_schema(KEPT[name])
    assert KEPT[name]["$id"] == name


@pytest.mark.parametrize(("action", "version"), PROMISED)
def test_what_a_version_promises_is_never_taken_back(action: str, version: int) -> None:
    reported = KEPT[f"{action}.v{version}.json"]
    assert set(reported["required"]) == PROMISED[action, version], (
        f"a change of what {action} promises is a new version: docs/use/events/README.md#how-an-event-may-change"
    )


def test_every_event_has_a_schema_a_promise_and_a_message() -> None:
    assert {(kind.__name__, kind.schema_version) for kind in KINDS} <= set(PROMISED)
    assert [*MESSAGES] == [kind.__name__ for kind in KINDS]
    assert set(ASYNCAPI["components"]["messages"]) == set(MESSAGES)


@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_a_real_message_fits_its_schema_and_has_no_undocumented_field(kind: Kind) -> None:
    reported = KEPT[file_name(kind)]
    assert valid(body(kind), reported)
    assert set(body(kind)) <= set(reported["properties"])
    if "contact" in body(kind):
        assert set(body(kind)["contact"]) == set(reported["$defs"]["PublishedContact"]["properties"])


@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_a_message_without_a_required_field_or_of_another_type_is_invalid(kind: Kind) -> None:
    reported = KEPT[file_name(kind)]
    for name in reported["required"]:
        assert not valid({field: value for field, value in body(kind).items() if field != name}, reported), (
            name
        )
    for wrong in ({"action": "Another"}, {"sequence": 0}, {"sequence": "1"}, {"id": 7}, {"id": "no-uuid"}):
        assert not valid(body(kind) | wrong, reported), wrong


@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_the_properties_of_a_message_are_those_of_the_asyncapi_document(kind: Kind) -> None:
    message = MESSAGES[kind.__name__]
    reported = ASYNCAPI["components"]["schemas"]
    assert valid(samples.headers(message), reported["applicationProperties"])
    assert set(samples.headers(message)) <= set(reported["applicationProperties"]["properties"])
    broker = {
        "MessageId": message.message_id,
        "SessionId": message.session_id,
        "Subject": message.subject,
        "ContentType": message.content_type,
        "CorrelationId": message.correlation_id,
    }
    sent = {name: value for name, value in broker.items() if value is not None}
    assert valid(sent, reported["brokerProperties"])
    uri = samples.headers(message)["cloudEvents_dataschema"]
    assert uri == f"https://contacts.example/events/{kind.__name__}.v1.json"
    assert uri.rpartition("/")[2] in KEPT


def test_every_reference_of_the_asyncapi_document_leads_somewhere() -> None:
    def references(node: Any) -> list[str]:
        if isinstance(node, dict):
            own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
            return own + [found for inner in node.values() for found in references(inner)]
        return [found for inner in node for found in references(inner)] if isinstance(node, list) else []

    for reference in references({name: part for name, part in ASYNCAPI.items() if name != "asyncapi"}):
        file, _, pointer = reference.partition("#")
        if file:
            assert (FOLDER / file).is_file(), reference
            continue
        node = ASYNCAPI
        for part in pointer.strip("/").split("/"):
            node = node[part]


# --- the version before and the next one ---------------------------------------------------------------------------


class NextName(Name):
    nickname: str | None = None


class NextNameUpdated(events.ContactEvent):
    """The event of a next version: it has gained a field, and so has a value in it."""

    action: Literal["ContactNameUpdatedEvent"] = "ContactNameUpdatedEvent"
    name: NextName
    reason: str | None = None


class ContactPhoneUpdatedEvent(events.ContactEvent):
    """An event that this version does not know."""

    schema_version: ClassVar[int] = 3
    action: Literal["ContactPhoneUpdatedEvent"] = "ContactPhoneUpdatedEvent"
    phone: str


NEXT_NAME = NextName(first_name="Jane", last_name="Roe", nickname="JR")
CONTACT = a_stored_contact()
OF_THE_NEXT = [
    NextNameUpdated(contact_id=CONTACT.id, sequence=2, created_at=LATER, name=NEXT_NAME, reason="marriage"),
    ContactPhoneUpdatedEvent(contact_id=CONTACT.id, sequence=3, created_at=LATER, phone="+47 1"),
]


def stored_by_the_next(event: events.ContactEvent) -> dict[str, Any]:
    return event_item(CONTACT, event, ORIGIN, ttl=60) | {"ofALaterVersion": {"x": 1}}


def test_an_event_that_gained_a_field_fits_the_schema_of_this_version() -> None:
    reported = KEPT["ContactNameUpdatedEvent.v1.json"]
    assert valid(stored_by_the_next(OF_THE_NEXT[0])["data"], reported)


def test_an_event_of_this_version_fits_the_schema_of_the_next() -> None:
    """It was stored before the deployment, and is received after it."""
    reported = schema(NextNameUpdated)
    assert {"reason"} == set(reported["properties"]) - set(
        KEPT["ContactNameUpdatedEvent.v1.json"]["properties"]
    )
    assert valid(samples.body(MESSAGES["ContactNameUpdatedEvent"]), reported)


@pytest.mark.parametrize("event", OF_THE_NEXT, ids=lambda event: event.action)
async def test_this_version_forwards_the_next_versions_events_as_stored(
    event: events.ContactEvent, lot: CosmosParkingLot
) -> None:
    item = stored_by_the_next(event)
    assert is_as_committed(item), "else it would be read again, and parked"
    publisher = BusPublisher()
    assert (await Relay(publisher, lot, committed(lot)).forward(EVENTS.events([item]))).sent == 1
    [sent] = publisher.bodies
    assert json.loads(sent) == item["data"]

    message = message_from_event(
        read(item), service=CloudEvents(contact_service.wire_names.source, "urn:x"), partitioned=False
    )
    received = READER.event(sent, samples.headers(message))
    assert received is not None
    assert tuple(received.aggregate) == CONTACT.key
    assert (received.action, received.sequence) == (event.action, event.sequence)
    assert samples.headers(message)["schemaVersion"] == event.schema_version
    assert (
        samples.headers(message)["cloudEvents_dataschema"]
        == f"urn:x/{event.action}.v{event.schema_version}.json"
    )


def test_the_version_before_can_check_what_this_version_stores() -> None:
    """It makes the digest of six fields; another field in the digest would park every event of a deployment."""
    item = stored_by_the_next(OF_THE_NEXT[0])
    known_before = {name: item[name] for name in ("id", "partitionKey", "type", "aggregateType", "data")}
    assert digest(known_before) == item[DIGEST]


async def test_this_version_forwards_the_previous_versions_events_as_stored(lot: CosmosParkingLot) -> None:
    """With the fields that only the store needs, and without the version of its schema."""
    data = EVENT_ITEM["data"] | {"action": "ContactCreatedEvent", "contact": CONTACT_ITEM["data"]}
    del data["name"]
    item = EVENT_ITEM | {"data": data}
    item |= {"digest": digest(item)}
    publisher = BusPublisher()
    assert (await Relay(publisher, lot, committed(lot)).forward(EVENTS.events([item]))).sent == 1
    [sent] = publisher.bodies
    assert json.loads(sent) == data
    assert {"deleted", "deletedAt", "lastSequence"} <= set(json.loads(sent)["contact"])
    assert valid(data, KEPT["ContactCreatedEvent.v1.json"])
    message = message_from_event(
        read(item), service=CloudEvents(contact_service.wire_names.source, "urn:x"), partitioned=False
    )
    assert not {"schemaVersion", "cloudEvents_dataschema"} & set(samples.headers(message))


def read(item: dict[str, Any]) -> OutboxEvent:
    event = EVENTS.event(item)
    assert isinstance(event, OutboxEvent)
    return event
