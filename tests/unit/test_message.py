"""An event as a Service Bus message."""

import contextlib
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
from azure.servicebus import ServiceBusMessageBatch, ServiceBusReceivedMessage
from azure.servicebus._pyamqp._encode import encode_payload, encode_value
from azure.servicebus._pyamqp.types import TYPE, VALUE, AMQPTypes
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from azure.servicebus.amqp import AmqpMessageBodyType
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from cosmos_outbox.inbox.errors import Unreadable
from cosmos_outbox.inbox.message import TolerantReader
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.outbox.publisher import CloudEvents
from cosmos_outbox.servicebus.message import (
    PropertyTooLarge,
    exact_size,
    is_encodable,
    message_from_event,
    size_at_most,
)
from cosmos_outbox.servicebus.sessions import body_of
from infra.bootstrap import DIRECTORY
from infra.bootstrap import service as contact_service
from tests.support.feed import EVENTS
from tests.support.reading import reader_of
from tests.unit.test_documents import CONTACT_ID, EVENT_ID, EVENT_ITEM

READER = reader_of(DIRECTORY)
SESSION = "32-02"
"""Of 32 buckets the one that this contact is in, for good."""


def an_event() -> OutboxEvent:
    event = EVENTS.event(EVENT_ITEM)
    assert isinstance(event, OutboxEvent)
    return event


def test_a_message_says_what_where_and_in_which_order() -> None:
    message = message_from_event(
        an_event(), service=CloudEvents(contact_service.wire_names.source), partitioned=False
    )
    assert message.message_id == str(EVENT_ID)
    assert message.session_id == SESSION
    assert message.partition_key is None
    assert message.subject == "ContactNameUpdatedEvent"
    assert message.correlation_id == "request-1"
    assert message.content_type == "application/json"
    assert json.loads(b"".join(message.body)) == EVENT_ITEM["data"]
    assert message.application_properties == {
        "cloudEvents_specversion": "1.0",
        "cloudEvents_id": str(EVENT_ID),
        "cloudEvents_source": "/contacts",
        "cloudEvents_type": "ContactNameUpdatedEvent",
        "cloudEvents_subject": str(CONTACT_ID),
        "cloudEvents_time": "2026-03-01T13:30:00+00:00",
        "sequence": 2,
        "aggregateType": "contact",
        b"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    }


def test_a_message_carries_its_events_tracestate() -> None:
    traced = replace(an_event(), tracestate="rojo=1,congo=2")
    message = message_from_event(
        traced, service=CloudEvents(contact_service.wire_names.source), partitioned=False
    )
    assert message.application_properties is not None
    assert message.application_properties["tracestate"] == "rojo=1,congo=2"


def test_a_message_of_an_event_without_a_sequence_says_so() -> None:
    """As the article prints its events, and as its sample stores them."""
    data = {name: value for name, value in EVENT_ITEM["data"].items() if name != "sequence"}
    event = EVENTS.event(EVENT_ITEM | {"data": data})
    assert isinstance(event, OutboxEvent)
    message = message_from_event(
        event, service=CloudEvents(contact_service.wire_names.source), partitioned=False
    )
    assert message.application_properties is not None
    assert message.application_properties["unsequenced"] is True
    assert "sequence" not in message.application_properties
    received = READER.event(b"".join(message.body), {})
    assert received is not None
    assert received.sequence is None


def test_a_message_names_its_bodys_schema_if_schemas_are_published() -> None:
    event = replace(an_event(), schema_version=2)
    unpublished = message_from_event(event, service=CloudEvents("/contacts"), partitioned=False)
    assert (unpublished.application_properties or {})["schemaVersion"] == 2
    assert "cloudEvents_dataschema" not in (unpublished.application_properties or {})
    service = CloudEvents("/contacts", schemas="https://schemas.example.com/events")
    published = message_from_event(event, service=service, partitioned=False)
    assert (published.application_properties or {})["cloudEvents_dataschema"] == (
        "https://schemas.example.com/events/ContactNameUpdatedEvent.v2.json"
    )


def test_a_republished_event_has_a_new_message_id_and_names_its_own() -> None:
    again = replace(an_event(), message_id="another")
    message = message_from_event(again, service=CloudEvents("/contacts"), partitioned=False)
    assert message.message_id == "another"
    assert message.application_properties is not None
    assert message.application_properties["originalMessageId"] == str(EVENT_ID)
    assert message.application_properties["cloudEvents_id"] == str(EVENT_ID)
    assert json.loads(b"".join(message.body))["id"] == str(EVENT_ID)


def test_on_a_partitioned_topic_the_session_is_the_partition_key() -> None:
    message = message_from_event(
        an_event(), service=CloudEvents(contact_service.wire_names.source), partitioned=True
    )
    assert (message.session_id, message.partition_key) == (SESSION, SESSION)


@pytest.mark.parametrize("partitioned", [True, False])
def test_an_aggregate_may_have_a_session_of_its_own_as_in_the_article(partitioned: bool) -> None:
    message = message_from_event(
        an_event(), service=CloudEvents("/contacts"), partitioned=partitioned, sessions=None
    )
    assert message.session_id == str(CONTACT_ID)
    assert message.partition_key == (str(CONTACT_ID) if partitioned else None)


def test_a_subscriber_reads_which_event_it_is_and_no_more() -> None:
    message = message_from_event(
        an_event(), service=CloudEvents(contact_service.wire_names.source), partitioned=False
    )
    event = READER.event(b"".join(message.body), {})
    assert event is not None
    assert (event.id, event.action, event.sequence) == (str(EVENT_ID), "ContactNameUpdatedEvent", 2)
    assert event.schema_version is None
    assert "Jane" not in repr(event)


def test_a_body_that_is_no_event_is_refused_without_being_repeated() -> None:
    for body in (
        b'{"id": "x", "secret": "Jane"}',
        b"Jane",
        b'["Jane"]',
        b'{"action": "Jane", "contactId": 1}',
    ):
        with pytest.raises(Unreadable) as caught:
            READER.event(body, {})
        assert "Jane" not in str(caught.value)


def test_a_read_event_is_immutable_and_a_reading_error_shows_no_value() -> None:
    class Person(TolerantReader):
        first_name: str
        age: int = 0

    read = Person.model_validate({"firstName": "Jane", "town": "Paris"})
    assert read == Person(first_name="Jane")
    with pytest.raises(ValidationError, match="frozen"):
        read.first_name = "Joan"  # type: ignore[misc]  # that is what is refused
    with pytest.raises(ValidationError, match="age") as caught:
        Person.model_validate({"firstName": "Jane", "age": "johndoe@contoso.com"})
    assert "johndoe" not in str(caught.value)


def test_an_unreadable_bodys_reason_names_wrong_fields_or_invalid_json() -> None:
    for body, why in (
        (b'{"id": "x", "contactId": "c"}', "action, createdAt missing or wrong"),
        (b"Jane", "no JSON"),
    ):
        with pytest.raises(Unreadable, match=why):
            READER.event(body, {})


def test_a_subscriber_reads_of_which_aggregate_an_event_is() -> None:
    message = message_from_event(
        an_event(), service=CloudEvents(contact_service.wire_names.source), partitioned=False
    )
    body = b"".join(message.body)
    properties = {str(name): value for name, value in (message.application_properties or {}).items()}
    for known in (properties, {}):  # without properties: from before messages had the type
        event = READER.event(body, known)
        assert event is not None
        assert event.aggregate == ("contact", str(CONTACT_ID))
    assert READER.event(body, {"aggregateType": "invoice"}) is None


def test_a_skip_marker_without_sequence_names_its_contact_in_a_header() -> None:
    body = {"id": "n", "action": "EventDiscarded", "createdAt": "2026-03-01T12:00:00Z"}
    skip_marker = READER.event(json.dumps(body).encode(), {"cloudEvents_subject": str(CONTACT_ID)})
    assert skip_marker is not None
    assert (skip_marker.is_skip, skip_marker.sequence, skip_marker.aggregate.id) == (
        True,
        None,
        str(CONTACT_ID),
    )
    nobody = READER.event(json.dumps(body).encode(), {"cloudEvents_subject": "nobody"})
    assert nobody is not None, "that there is no such contact is for the source to say"
    for wrong in ({}, {"cloudEvents_subject": "a/b"}, {"cloudEvents_subject": 7}):
        with pytest.raises(Unreadable):
            READER.event(json.dumps(body).encode(), wrong)


def test_the_lengths_of_many_long_properties_are_counted() -> None:
    """AMQP says the length of a text in four bytes from 256 bytes on, of a shorter one in one."""
    long = "ä" * 128
    event = replace(
        an_event(), id=long, message_id="ö" * 128, action=long, correlation_id=long, traceparent=long,
        tracestate=long, aggregate=AggregateKey(long, long), schema_version=2**40,
    )  # fmt: skip
    service = CloudEvents(f"/{long}", schemas=f"https://{long}")
    message = message_from_event(event, service=service, partitioned=True, sessions=None)
    batch = ServiceBusMessageBatch(max_size_in_bytes=1_000_000)
    empty = batch.size_in_bytes
    batch.add_message(message)
    assert batch.size_in_bytes - empty <= size_at_most(message)


@pytest.mark.parametrize(("length", "fits"), [(32_767, True), (32_768, False)])
def test_a_property_may_have_32_kb_less_one_byte(length: int, fits: bool) -> None:
    event = replace(an_event(), correlation_id="x" * length)
    message = message_from_event(event, service=CloudEvents("/contacts"), partitioned=False)
    with contextlib.nullcontext() if fits else pytest.raises(PropertyTooLarge):
        size_at_most(message)


@given(
    text=st.text(max_size=400), contact=st.text(min_size=1, max_size=120),
    correlation=st.none() | st.text(max_size=300), partitioned=st.booleans(),
)  # fmt: skip
def test_a_message_is_never_larger_than_it_is_counted_and_hardly_smaller(
    text: str, contact: str, correlation: str | None, partitioned: bool
) -> None:
    event = replace(
        an_event(),
        aggregate=AggregateKey("contact", contact),
        correlation_id=correlation,
        data={"text": text},
    )
    message = message_from_event(
        event, service=CloudEvents(contact_service.wire_names.source), partitioned=partitioned
    )
    exact = exact_size(message)
    batch = ServiceBusMessageBatch(max_size_in_bytes=1_000_000)
    empty = batch.size_in_bytes
    batch.add_message(message)
    assert batch.size_in_bytes - empty <= size_at_most(message) <= exact + 200


@pytest.mark.parametrize("number", [1, 200, 2**31 - 1, 2**31, 2**53])
def test_a_number_is_an_amqp_long_whatever_its_value(number: int) -> None:
    """A subscriber that asks for a type finds the same one always. The constants are those of the SDK's codec."""
    event = replace(an_event(), sequence=number, schema_version=number)
    message = message_from_event(event, service=CloudEvents("/contacts"), partitioned=False)
    for name in ("sequence", "schemaVersion"):
        value = (message.application_properties or {})[name]
        assert value == number
        said, plain = bytearray(), bytearray()
        encode_value(said, value)
        encode_value(plain, {TYPE: AMQPTypes.long, VALUE: number})
        assert said == plain


def test_a_message_that_the_sdk_cannot_encode_is_known() -> None:
    fine, broken = (
        message_from_event(replace(an_event(), sequence=n), service=CloudEvents("/c"), partitioned=False)
        for n in (1, 2**70)
    )
    assert is_encodable(fine)
    assert not is_encodable(broken)


def test_the_size_of_a_message_that_is_sent_alone_is_that_of_its_bytes() -> None:
    message = message_from_event(an_event(), service=CloudEvents("/c"), partitioned=False)
    sent = PyamqpTransport.to_outgoing_amqp_message(message.raw_amqp_message)
    assert exact_size(message) == len(encode_payload(bytearray(), sent))


@pytest.mark.parametrize(
    ("body_type", "body", "found"),
    [
        (AmqpMessageBodyType.DATA, iter([b"in ", b"parts"]), b"in parts"),
        (AmqpMessageBodyType.VALUE, b"bytes", b"bytes"),
        (AmqpMessageBodyType.VALUE, "text", b"text"),
        (AmqpMessageBodyType.VALUE, None, b"None"),
        (AmqpMessageBodyType.SEQUENCE, iter([[1, 2], [3]]), b"[[1, 2], [3]]"),
    ],
)
def test_a_message_has_a_body_of_bytes_however_its_sender_wrote_it(
    body_type: AmqpMessageBodyType, body: object, found: bytes
) -> None:
    message = SimpleNamespace(body_type=body_type, body=body)
    assert body_of(cast(ServiceBusReceivedMessage, message)) == found
