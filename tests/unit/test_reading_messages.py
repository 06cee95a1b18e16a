"""What a message's properties tell beside its body: that it cannot be read, and that it is published again."""

import json

import pytest
from pydantic import ValidationError

from cosmos_outbox.inbox.errors import Unreadable
from cosmos_outbox.inbox.reading import MessageReader, TolerantReader

READER = MessageReader("thing")
BODY = (
    b'{"id": "e-1", "action": "Changed", "sequence": 1, "createdAt": "2026-03-01T12:00:00Z", "thingId": "7"}'
)


def test_the_reason_for_which_a_transport_could_not_read_a_message_is_told_whatever_its_body() -> None:
    properties = {"aggregateType": "thing", "unreadable": "its data, the blob a, was erased"}
    for body in (b"", BODY):
        with pytest.raises(Unreadable, match="its data, the blob a, was erased"):
            READER.event(body, properties)


def test_what_a_subscriber_knows_of_an_event_nobody_changes_by_accident() -> None:
    class Thing(TolerantReader):
        longest_way: int

    thing = Thing.model_validate({"longestWay": 7, "and": "more"})
    with pytest.raises(ValidationError, match="frozen"):
        setattr(thing, "longest_way", 8)  # noqa: B010 - the checker knows it too
    assert hash(thing) == hash(Thing(longest_way=7))


def test_what_a_message_tells_is_not_in_the_error_that_it_cannot_be_read() -> None:
    class Thing(TolerantReader):
        longest_way: int

    with pytest.raises(ValidationError) as told:
        Thing.model_validate({"longestWay": "of Ann, 7 Main Street"})
    assert "Ann" not in str(told.value)


@pytest.mark.parametrize("again", [False, True])
def test_a_message_says_whether_it_is_published_again(again: bool) -> None:
    properties = {"aggregateType": "thing"} | ({"originalMessageId": "e-1"} if again else {})
    event = READER.event(BODY, properties)
    assert event is not None
    assert (event.id, event.republished) == ("e-1", again)


@pytest.mark.parametrize("name", ["id", "action"])
def test_an_event_whose_name_or_id_is_empty_is_none(name: str) -> None:
    body = json.dumps(json.loads(BODY) | {name: ""}).encode()
    with pytest.raises(Unreadable, match=f"{name} missing or wrong"):
        READER.event(body, {"aggregateType": "thing"})


def test_a_message_that_tells_no_type_is_for_whoever_says_that_it_knows_such() -> None:
    assert READER.event(BODY, {}) is None
    older = MessageReader("thing", untyped=True)
    assert older.event(BODY, {}) is not None
    assert older.event(BODY, {"aggregateType": "another"}) is None
