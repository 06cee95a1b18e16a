"""What an adapter makes of answers, messages and documents that are at the edge of what it expects."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace
from typing import cast

import pytest
from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.amqp import AmqpMessageBodyType

from cosmos_outbox.cosmos.store.answers import age
from cosmos_outbox.cosmos.store.attempts import Attempts
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.cosmos.store.stored_values import document_id, lifetime
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.outbox.feed import Lifetime
from cosmos_outbox.servicebus.bodies import body_of
from cosmos_outbox.servicebus.received import delivery_of

WRITTEN = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_an_items_age_is_from_its_last_write_to_the_answers_date() -> None:
    item = {"_ts": int(WRITTEN.timestamp())}
    assert age(item, format_datetime(WRITTEN + timedelta(seconds=90), usegmt=True)) == 90


@pytest.mark.parametrize("date", [None, "", "no date"])
def test_without_a_readable_date_an_items_age_is_by_this_machines_clock(date: str | None) -> None:
    item = {"_ts": int(utc_now().timestamp()) - 90}
    assert age(item, date) == pytest.approx(90, abs=10)


@pytest.mark.parametrize(
    ("attempts", "failure", "kind", "lost"),
    [
        (Attempts(throttled=True), Failure(Kind.PASSING, "late"), Kind.THROTTLED, False),
        (Attempts(throttled=True, answer_lost=True), Failure(Kind.PASSING, "late"), Kind.PASSING, True),
        (Attempts(throttled=True, succeeded=True), Failure(Kind.PASSING, "late"), Kind.PASSING, True),
        (Attempts(), Failure(Kind.PASSING, "late"), Kind.PASSING, False),
        (Attempts(), Failure(Kind.STALE, "412", status=412), Kind.STALE, False),
        (Attempts(), Failure(Kind.CONFLICT, "409"), Kind.CONFLICT, False),
        (Attempts(answer_lost=True), Failure(Kind.CONFLICT, "409", status=409), Kind.CONFLICT, True),
        (Attempts(), Failure(Kind.PASSING, "503", status=503), Kind.PASSING, True),
        (Attempts(), Failure(Kind.PASSING, "449", status=449), Kind.PASSING, False),
    ],
)
def test_whether_a_failed_batch_may_be_stored_is_told(
    attempts: Attempts, failure: Failure, kind: Kind, *, lost: bool
) -> None:
    found = attempts.outcome(failure)
    assert (found.kind, found.answer_lost) == (kind, lost)


def test_a_message_keeps_what_json_can_hold_of_its_properties() -> None:
    message = SimpleNamespace(
        message_id="m",
        enqueued_sequence_number=None,
        sequence_number=None,
        application_properties={
            b"text": b"a",
            "number": 7,
            "none": None,
            "yes": True,
            "time": WRITTEN,
            b"DeadLetterReason": b"x",
        },
    )
    found = delivery_of(message, b"body", "orders")
    assert found.enqueued_number == 0
    assert found.properties == {
        "text": "a", "number": 7, "none": None, "yes": True, "time": "2026-03-01 12:00:00+00:00"
    }  # fmt: skip


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


@pytest.mark.parametrize("known", ["a", "x" * 1023, "with space"])
def test_the_id_that_a_store_can_keep_is_shown_as_it_is(known: str) -> None:
    assert document_id({"id": known}) == known


@pytest.mark.parametrize("unknown", ["x" * 1024, "a\nb", 7, None, {1, 2}])
def test_an_id_that_no_line_can_show_has_a_stand_in_of_its_own(unknown: object) -> None:
    assert document_id({"id": unknown}).startswith("unreadable-")
    assert document_id({"id": unknown}) == document_id({"id": unknown})


def test_a_document_of_one_second_expires_and_of_none_does_not() -> None:
    assert lifetime({"ttl": 1, "_ts": 0}) == Lifetime(0, 1)
    assert lifetime({"ttl": 0, "_ts": 5}) is None
    assert lifetime({"ttl": -1, "_ts": 5}) is None
