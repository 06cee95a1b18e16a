"""Whatever lies in a Storage queue is read or set aside: no message stops the reader of the queue."""

import json

import pytest

from cosmos_outbox.inbox.errors import Unreadable
from cosmos_outbox.inbox.message import Delivery, MessageReader
from cosmos_outbox.storagequeue.message import arrived

_EVENT = '{"specversion":"1.0","id":"1","aggregatetype":"contact","data":%s}'
NO_EVENTS = {
    "nothing": None,
    "empty": "",
    "nested": _EVENT % ("[" * 20_000 + "]" * 20_000),
    "half a character, escaped": _EVENT % '{"text":"\\ud800"}',
    "half a character": _EVENT % '{"text":"\ud800"}',
    "an id with half a character": '{"specversion":"1.0","id":"\\ud800","data":{}}',
    "a number of 5000 digits": _EVENT % ("9" * 5_000),
    "no text": b"\xff\xfe",
    "a list": "[]",
    "no id": '{"specversion":"1.0","data":{}}',
}


@pytest.mark.parametrize("text", NO_EVENTS.values(), ids=NO_EVENTS)
def test_what_is_no_event_is_reported_as_such(text: str | bytes | None) -> None:
    found = arrived(text, "m", "q").delivery
    with pytest.raises(Unreadable):
        MessageReader("contact").read(found)
    assert _kept(found)


def _kept(delivery: Delivery) -> bool:
    """A record of it can be stored: as JSON in UTF-8."""
    record = json.dumps([delivery.message_id, dict(delivery.properties)], ensure_ascii=False).encode()
    return bool(record and delivery.record_id)


_PLAIN = {
    "specversion": "1.0", "id": "e1", "aggregatetype": "contact", "sequence": 3, "schemaversion": 2,
    "source": "/test", "subject": "ada", "traceparent": "00-t", "correlationid": "c", "data": {"a": 1},
}  # fmt: skip
_PROPERTIES = {
    "aggregateType": "contact", "sequence": 3, "schemaVersion": 2, "cloudEvents_source": "/test",
    "cloudEvents_subject": "ada", "traceparent": "00-t",
}  # fmt: skip


def test_an_event_is_delivered_under_its_own_id_or_its_republished_one() -> None:
    """A queue gives no number: each copy of a message has the same record."""
    found = arrived(json.dumps(_PLAIN), "m1", "q")
    assert found.delivery == Delivery("q", "e1", 0, b'{"a":1}', _PROPERTIES)
    assert found.correlation_id == "c"

    again = arrived(json.dumps(_PLAIN | {"messageid": "e1-again", "correlationid": 5}), "m2", "q")
    assert again.delivery == Delivery(
        "q", "e1-again", 0, b'{"a":1}', _PROPERTIES | {"originalMessageId": "e1"}
    )
    assert again.correlation_id is None
