"""What a batch loses on its way through the real host's protocol, and what it does not."""

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.amqp import AmqpMessageBodyType

from devstack.functions.invocation import CONVERTERS, Input
from devstack.functions.servicebus_message import UnsupportedBody, bind_many, bind_one


def received(number: int, body: bytes = b"body", **properties: Any) -> ServiceBusReceivedMessage:
    """As much of a received message as is read; the real ones are in the tests over a socket."""
    nothing = dict.fromkeys(
        [
            "application_properties",
            "content_type",
            "correlation_id",
            "dead_letter_source",
            "expires_at_utc",
            "partition_key",
            "reply_to",
            "reply_to_session_id",
            "session_id",
            "subject",
            "to",
        ]
    )
    given = {
        "message_id": f"id {number}",
        "sequence_number": number,
        "delivery_count": 0,
        "enqueued_time_utc": datetime(2026, 1, 2, tzinfo=UTC),
        "lock_token": f"token {number}",
        "body_type": AmqpMessageBodyType.DATA,
        "body": [body[:2], body[2:]],
    }
    return cast(ServiceBusReceivedMessage, SimpleNamespace(**{**nothing, **given, **properties}))


def seen(value: Input) -> Any:
    """What the function gets."""
    return CONVERTERS["serviceBusTrigger"].decode(value.value, trigger_metadata=value.metadata)


def test_a_batch_keeps_what_every_message_has() -> None:
    batch = [received(1, b"one", application_properties={b"n": 1}), received(2, b"two", delivery_count=3)]
    bound = seen(bind_many(batch, binary=False))

    assert [message.get_body() for message in bound] == [b"one", b"two"]
    assert [message.message_id for message in bound] == ["id 1", "id 2"]
    assert [message.sequence_number for message in bound] == [1, 2]
    assert [message.delivery_count for message in bound] == [1, 4]
    assert [message.application_properties for message in bound] == [{"n": 1}, {}]


def test_in_a_batch_a_missing_text_makes_the_later_ones_move_up() -> None:
    bound = seen(bind_many([received(1), received(2, session_id="second")], binary=False))

    assert [message.session_id for message in bound] == ["second", None]


def test_one_message_without_properties_has_none() -> None:
    bound = seen(bind_one(received(1), binary=False))

    assert (bound.session_id, bound.subject, bound.correlation_id) == (None, None, None)
    assert bound.application_properties == {}
    assert bound.expires_at_utc.year == 9999


@pytest.mark.parametrize("binary", [True, False])
def test_bytes_that_are_no_text_arrive_as_they_are(binary: bool) -> None:
    assert seen(bind_one(received(1, b"\xff\x00\xfe"), binary=binary)).get_body() == b"\xff\x00\xfe"


def test_a_batch_of_bytes_is_a_batch_of_bytes() -> None:
    bound = seen(bind_many([received(1, b"\xff\x00\xfe"), received(2, b"two")], binary=True))

    assert [message.get_body() for message in bound] == [b"\xff\x00\xfe", b"two"]


def test_json_stays_text() -> None:
    body = json.dumps({"é": [1, 2]}).encode()

    assert seen(bind_one(received(1, body), binary=False)).get_body() == body


def test_a_body_that_is_no_data_is_refused() -> None:
    with pytest.raises(UnsupportedBody, match="id 1"):
        bind_one(received(1, body_type=AmqpMessageBodyType.VALUE), binary=False)
