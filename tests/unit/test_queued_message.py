"""Whatever lies in a Storage queue can be told and set aside: no message stops the one who reads the queue."""

import json
from dataclasses import replace

import pytest

from cosmos_outbox.inbox.errors import Unreadable
from cosmos_outbox.inbox.reading import MessageReader
from cosmos_outbox.inbox.set_aside import Delivery
from cosmos_outbox.outbox.cloud_events import CloudEvents
from cosmos_outbox.storagequeue.message import MessageForm, arrived
from tests.support.publishing import event

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
def test_what_is_no_event_is_told_as_such(text: str | bytes | None) -> None:
    found = arrived(text, "m", "q").delivery
    with pytest.raises(Unreadable):
        MessageReader("contact").read(found)
    assert _kept(found)


def test_what_has_another_form_than_an_events_is_told_as_such() -> None:
    document = {
        "specversion": "1.0",
        "id": {"a": 1},
        "aggregatetype": ["contact"],
        "traceparent": 5,
        "data": 7,
    }
    found = arrived(json.dumps(document), "m", "q").delivery
    assert MessageReader("contact").read(found) is None, "of no aggregate type"
    assert _kept(found)


def _kept(delivery: Delivery) -> bool:
    """A record of it can be stored: as JSON in UTF-8."""
    record = json.dumps([delivery.message_id, dict(delivery.properties)], ensure_ascii=False).encode()
    return bool(record and delivery.record_id)


def test_no_two_events_of_an_aggregate_claim_one_blob() -> None:
    """The blob that is there is not replaced: a subscriber would get the other event's data."""
    form, long = MessageForm(CloudEvents("/test"), encoded=True), "x" * 200
    ids = ["a:b", "a_b", "a/b", f"{long}1", f"{long}2", long[:100], "\ud800", "\ud801"]
    names = [form.claimed(replace(event("a", 1), id=each))[1].name for each in ids]
    assert len({*names}) == len(ids)
    assert names[0] == form.claimed(replace(event("a", 1), id=ids[0]))[1].name, "the same for each attempt"
    for each, name in zip(ids, names, strict=True):
        text, _ = form.claimed(replace(event("a", 1), id=each))
        assert arrived(text, "m", "q").claim == (name if each.isascii() else None)


_PLAIN = {
    "specversion": "1.0", "id": "e1", "aggregatetype": "contact", "sequence": 3, "schemaversion": 2,
    "source": "/test", "subject": "ada", "traceparent": "00-t", "correlationid": "c", "data": {"a": 1},
}  # fmt: skip
_PROPERTIES = {
    "aggregateType": "contact", "sequence": 3, "schemaVersion": 2, "cloudEvents_source": "/test",
    "cloudEvents_subject": "ada", "traceparent": "00-t",
}  # fmt: skip


def test_an_event_is_delivered_under_its_own_id_and_again_under_the_one_that_it_was_sent_as() -> None:
    """A queue gives no number: each copy of a message has the same record."""
    found = arrived(json.dumps(_PLAIN), "m1", "q")
    assert found.delivery == Delivery("q", "e1", 0, b'{"a":1}', _PROPERTIES)
    assert (found.correlation_id, found.claim) == ("c", None)

    again = arrived(json.dumps(_PLAIN | {"messageid": "e1-again", "correlationid": 5}), "m2", "q")
    assert again.delivery == Delivery(
        "q", "e1-again", 0, b'{"a":1}', _PROPERTIES | {"originalMessageId": "e1"}
    )
    assert again.correlation_id is None


def test_what_is_no_event_is_delivered_under_the_queues_id_as_it_came() -> None:
    told = {"unreadable": "it is no JSON of CloudEvents"}
    for text in ("hello", b"hello"):
        assert arrived(text, "m", "q").delivery == Delivery("q", "m", 0, b"hello", told)
    old = json.dumps(_PLAIN | {"specversion": "0.3"})
    assert arrived(old, "m", "q").delivery == Delivery("q", "m", 0, old.encode(), told)
    assert arrived(None, "m", "q").delivery == Delivery("q", "m", 0, b"", told)


@pytest.mark.parametrize(
    "claim", [None, 5, "", "x.json", "../secrets/x.json", f"https://evil.example/{'0' * 32}/x.json", ["x"]]
)
def test_a_message_makes_nobody_read_elsewhere_than_in_the_claims(claim: object) -> None:
    document = {name: value for name, value in _PLAIN.items() if name != "data"} | {"dataref": claim}
    found = arrived(json.dumps(document), "m", "q")
    assert found.claim is None
    assert found.delivery.properties["unreadable"] == "it has neither data nor the name of a claim"


def test_a_message_that_has_data_claims_none() -> None:
    both = _PLAIN | {"dataref": f"{'0' * 32}/x.json"}
    found = arrived(json.dumps(both), "m", "q")
    assert (found.claim, found.delivery.body) == (None, b'{"a":1}')
