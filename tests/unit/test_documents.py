"""Contacts and events as Cosmos items, and back."""

import hashlib
import re
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from cosmos_outbox.cosmos.aggregates.documents import (
    EventReader,
    aggregate_from_item,
    aggregate_item,
    check_storable,
    event_item,
    is_as_committed,
)
from cosmos_outbox.cosmos.store.partition_key import PARTITION_KEY
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.errors import Unpublishable
from cosmos_outbox.outbox.feed import OutboxEvent, Poison
from domain.contact import Contact
from domain.events import ContactNameUpdatedEvent
from domain.values import Company, ContactDetails, ContactState, Name
from tests.support.contacts import LATER, NOON, ORIGIN, stored
from tests.support.feed import EVENTS

CONTACT_ID = UUID("b5e2e7aa-4982-4735-9422-c39a7c4af5c2")
EVENT_ID = UUID("d6a5f4b2-84c3-4ac7-ae22-6f4025ba9ca0")
CONTACT_ITEM: dict[str, Any] = {
    "id": "b5e2e7aa-4982-4735-9422-c39a7c4af5c2",
    "partitionKey": "b5e2e7aa-4982-4735-9422-c39a7c4af5c2",
    "type": "contact",
    "data": {
        "id": "b5e2e7aa-4982-4735-9422-c39a7c4af5c2",
        "name": {"firstName": "John", "lastName": "Doe"},
        "email": "johndoe@contoso.com",
        "description": None,
        "company": {
            "companyName": "Contoso",
            "street": None,
            "houseNumber": "1a",
            "postalCode": None,
            "city": None,
            "country": "US",
        },
        "createdAt": "2026-03-01T12:00:00Z",
        "modifiedAt": None,
        "deletedAt": None,
        "deleted": False,
        "lastSequence": 1,
    },
    "ttl": -1,
}
EVENT_ITEM: dict[str, Any] = {
    "id": "d6a5f4b2-84c3-4ac7-ae22-6f4025ba9ca0",
    "partitionKey": "b5e2e7aa-4982-4735-9422-c39a7c4af5c2",
    "type": "domainEvent",
    "aggregateType": "contact",
    "data": {
        "id": "d6a5f4b2-84c3-4ac7-ae22-6f4025ba9ca0",
        "contactId": "b5e2e7aa-4982-4735-9422-c39a7c4af5c2",
        "action": "ContactNameUpdatedEvent",
        "sequence": 2,
        "createdAt": "2026-03-01T13:30:00Z",
        "name": {"firstName": "Jane", "lastName": "Doe"},
        "correlationId": "request-1",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    },
    "ttl": 864000,
}
SIGNED = (
    '{"aggregateType":"contact","data":{"action":"ContactNameUpdatedEvent","contactId":'
    '"b5e2e7aa-4982-4735-9422-c39a7c4af5c2","correlationId":"request-1","createdAt":"2026-03-01T13:30:00Z","id":'
    '"d6a5f4b2-84c3-4ac7-ae22-6f4025ba9ca0","name":{"firstName":"Jane","lastName":"Doe"},"sequence":2,"traceparent":'
    '"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},"id":"d6a5f4b2-84c3-4ac7-ae22-6f4025ba9ca0",'
    '"partitionKey":"b5e2e7aa-4982-4735-9422-c39a7c4af5c2","type":"domainEvent"}'
)
"""What the digest of EVENT_ITEM is made of, in canonical form, written by hand."""


def a_contact() -> Contact:
    details = ContactDetails(
        name=Name(first_name="John", last_name="Doe"),
        email="johndoe@contoso.com",
        company=Company(company_name="Contoso", house_number="1a", country="US"),
    )
    return Contact.create(details, at=NOON, id=CONTACT_ID)


def an_event() -> ContactNameUpdatedEvent:
    return ContactNameUpdatedEvent(
        id=EVENT_ID,
        contact_id=CONTACT_ID,
        sequence=2,
        created_at=LATER,
        name=Name(first_name="Jane", last_name="Doe"),
    )


def test_a_contact_as_an_item() -> None:
    assert aggregate_item(stored(a_contact()), stored(a_contact()).state, ttl=-1) == CONTACT_ITEM


def test_a_contact_out_of_an_item() -> None:
    read = CONTACT_ITEM | {"_etag": '"7"', "_ts": 1, "_rid": "x", "_self": "y", "_attachments": "a/"}
    found = aggregate_from_item(Contact, read)
    assert found.aggregate.state == stored(a_contact()).state
    assert found.etag == '"7"'
    with pytest.raises(ValueError, match="not a contact"):
        aggregate_from_item(Contact, EVENT_ITEM)


def test_what_a_later_version_has_stored_is_kept_by_this_one() -> None:
    """A deployment that is taken back must neither refuse the contact nor lose the property that it does not know."""
    read = CONTACT_ITEM | {"data": CONTACT_ITEM["data"] | {"ofALaterVersion": "x"}, "_etag": '"7"'}
    contact = aggregate_from_item(Contact, read).aggregate
    contact.rename(Name(first_name="Jane", last_name="Doe"), at=LATER)
    changes = contact.changes()
    assert changes is not None
    assert aggregate_item(contact, changes.state, ttl=-1)["data"]["ofALaterVersion"] == "x"
    assert [event.action for event in changes.events] == ["ContactNameUpdatedEvent"]


def test_an_event_as_an_item() -> None:
    digest = hashlib.sha256(SIGNED.encode()).hexdigest()
    assert event_item(a_contact(), an_event(), ORIGIN, ttl=864000) == EVENT_ITEM | {
        "digest": digest,
        "schemaVersion": 1,
    }


def test_who_caused_an_event_stands_in_it_and_in_its_digest() -> None:
    item = event_item(a_contact(), an_event(), replace(ORIGIN, caused_by="p-1"), ttl=864000)
    assert item["data"] == EVENT_ITEM["data"] | {"causedBy": "p-1"}
    assert is_as_committed(item)
    assert not is_as_committed(item | {"data": EVENT_ITEM["data"]})
    assert isinstance(EVENTS.event(item), OutboxEvent)


STATE = "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"


def test_the_tracestate_goes_beside_the_traceparent_and_into_the_digest() -> None:
    item = event_item(a_contact(), an_event(), replace(ORIGIN, tracestate=STATE), ttl=864000)
    assert item["data"] == EVENT_ITEM["data"] | {"tracestate": STATE}
    assert is_as_committed(item)
    assert not is_as_committed(item | {"data": EVENT_ITEM["data"]})
    event = EVENTS.event(item)
    assert isinstance(event, OutboxEvent)
    assert event.tracestate == STATE


@pytest.mark.parametrize("foreign", [7, None, ["a=b"], "no state", "k=" + "v" * 70_000])
def test_an_event_with_what_is_no_tracestate_is_an_event_all_the_same(foreign: Any) -> None:
    event = EVENTS.event(EVENT_ITEM | {"data": EVENT_ITEM["data"] | {"tracestate": foreign}})
    assert isinstance(event, OutboxEvent)
    assert event.tracestate is None


def test_an_event_out_of_an_item() -> None:
    assert EVENTS.event(EVENT_ITEM | {"_lsn": 5, "_ts": 1}) == OutboxEvent(
        id=str(EVENT_ID),
        aggregate=AggregateKey("contact", str(CONTACT_ID)),
        action="ContactNameUpdatedEvent",
        sequence=2,
        created_at=LATER,
        correlation_id="request-1",
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        lsn=5,
        partition=PARTITION_KEY.name(str(CONTACT_ID)),
        data=EVENT_ITEM["data"],
        document=EVENT_ITEM | {"_lsn": 5, "_ts": 1},
    )


@pytest.mark.parametrize(
    "item", [CONTACT_ITEM, {}, {"type": None}, {"type": ["domainEvent"]}, {"type": "inbox"}]
)
def test_an_item_that_is_no_event_is_left_alone(item: dict[str, Any]) -> None:
    assert EVENTS.event(item) is None


def broken(**data: Any) -> dict[str, Any]:
    return EVENT_ITEM | {"data": EVENT_ITEM["data"] | data}


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (EVENT_ITEM | {"data": None}, "data"),
        (EVENT_ITEM | {"data": "x"}, "data"),
        ({"type": "domainEvent"}, "data"),
        (broken(sequence=0), "sequence"),
        (broken(sequence="2"), "sequence"),
        (broken(sequence=True), "sequence"),
        (broken(sequence=2**53 + 1), "sequence"),
        (broken(sequence=10**400), "sequence"),
        (broken(createdAt="0001-01-01T00:00:00+05:00"), "createdAt"),
        (broken(createdAt="9999-12-31T23:59:59-05:00"), "createdAt"),
        (broken(correlationId="\ud800"), "correlationId"),
        (broken(traceparent="\ud800"), "traceparent"),
        (broken(action=""), "action"),
        (broken(action="x" * 129), "action"),
        (broken(createdAt="yesterday"), "createdAt"),
        (broken(contactId="someone-else"), "another event or aggregate"),
        (EVENT_ITEM | {"id": "other"}, "another event or aggregate"),
        (EVENT_ITEM | {"id": "x" * 129, "data": EVENT_ITEM["data"] | {"id": "x" * 129}}, "data.id"),
        (broken(correlationId=5), "correlationId"),
        (EVENT_ITEM | {"id": "1", "data": EVENT_ITEM["data"] | {"id": "1"}}, "data.id"),
    ],
)
def test_a_broken_event_is_poison_with_a_reason(item: dict[str, Any], reason: str) -> None:
    result = EVENTS.event(item)
    assert isinstance(result, Poison)
    assert reason in result.reason
    assert "Jane" not in result.reason


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("0001-01-01T00:00:00", datetime(1, 1, 1, tzinfo=UTC)),
        ("9999-12-31T23:59:59.999999", datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
        ("2026-03-01T12:00:00", datetime(2026, 3, 1, 12, tzinfo=UTC)),
        ("2026-03-01T12:00:00+02:00", datetime(2026, 3, 1, 10, tzinfo=UTC)),
    ],
)
def test_a_time_is_in_utc_whatever_the_zone_of_the_machine(
    text: str, moment: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    for zone in ("America/New_York", "Asia/Tokyo"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        event = EVENTS.event(broken(createdAt=text))
        assert isinstance(event, OutboxEvent)
        assert (event.created_at, event.created_at.utcoffset()) == (moment, timedelta(0))
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("version", [2**31, 2**53, 2**53 + 1, 10**400])
def test_a_schema_version_that_no_message_can_carry_is_left_out(version: int) -> None:
    event = EVENTS.event(EVENT_ITEM | {"schemaVersion": version})
    assert isinstance(event, OutboxEvent)
    assert event.schema_version == (version if version <= 2**53 else None)


def test_an_id_that_no_log_line_can_show_has_a_stand_in_of_its_own() -> None:
    ids = ["\ud800", "a\nb", "x" * 1024, {"Jane": 1}, 7, None]
    found = [EVENTS.event(EVENT_ITEM | {"id": each}) for each in [*ids, *ids]]
    names = [event.id for event in found if isinstance(event, Poison)]
    assert len(names) == 2 * len(ids)
    assert len(set(names)) == len(ids)
    assert all(name.startswith("unreadable-") and name.isascii() for name in names)


@pytest.mark.parametrize("name", ["partitionKey", "aggregateId", "aggregateType"])
def test_a_lone_surrogate_names_no_aggregate(name: str) -> None:
    poison = EVENTS.event(EVENT_ITEM | {name: "a\ud800"})
    assert isinstance(poison, Poison)
    assert poison.aggregate is None


def untyped(item: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name != "aggregateType"}


def test_an_event_stored_without_a_type_is_a_contacts() -> None:
    event = EVENTS.event(untyped(EVENT_ITEM))
    assert isinstance(event, OutboxEvent)
    assert event.aggregate == AggregateKey("contact", str(CONTACT_ID))
    assert isinstance(EventReader().event(untyped(EVENT_ITEM)), Poison), "where there are no such events"


def test_an_aggregate_in_the_partition_of_another_is_known_by_its_own_id() -> None:
    item = EVENT_ITEM | {"aggregateType": "task", "aggregateId": "t-1"}
    event = EVENTS.event(item)
    assert isinstance(event, OutboxEvent)
    assert event.aggregate == AggregateKey("task", "t-1")


def test_data_may_name_its_aggregate_and_must_then_name_the_right_one() -> None:
    item = EVENT_ITEM | {"aggregateType": "order", "data": EVENT_ITEM["data"] | {"orderId": "another"}}
    assert isinstance(EVENTS.event(item), Poison)


@pytest.mark.parametrize(
    ("key", "owner"),
    [
        (str(CONTACT_ID), AggregateKey("contact", str(CONTACT_ID))), ("anyone", AggregateKey("contact", "anyone")),
        ("", None), ("x" * 129, None), (None, None), (7, None), (["x"], None),
    ],
)  # fmt: skip
def test_poison_belongs_to_the_aggregate_in_whose_partition_it_is(
    key: Any, owner: AggregateKey | None
) -> None:
    result = EVENTS.event({"type": "domainEvent", "id": "x", "partitionKey": key, "_lsn": "7"})
    assert isinstance(result, Poison)
    assert (result.aggregate, result.lsn) == (owner, 0)


def test_an_event_does_not_show_its_data_in_a_log() -> None:
    assert "Jane" not in repr(EVENTS.event(EVENT_ITEM))


def committed() -> dict[str, Any]:
    return event_item(a_contact(), an_event(), ORIGIN, ttl=864000)


@pytest.mark.parametrize(
    "change",
    [
        {}, {"_lsn": 7, "_ts": 1, "_etag": "x"}, {"ttl": 5},
        {"data": {**committed()["data"], "sequence": 2.0}}, {"data": dict(reversed(committed()["data"].items()))},
    ],
)  # fmt: skip
def test_additions_of_the_service_and_number_formats_keep_it_as_committed(change: dict[str, Any]) -> None:
    assert is_as_committed(committed() | change)


@pytest.mark.parametrize(
    "change",
    [
        {"data": {**committed()["data"], "createdAt": "2026-03-01T13:30:00"}},
        {"data": {**committed()["data"], "more": None}}, {"data": {**committed()["data"], "x": "\ud800"}},
        {"id": "other"}, {"partitionKey": "other"}, {"aggregateType": "order"}, {"aggregateId": "x"},
        {"digest": None}, {"digest": "0" * 64}, {"data": None},
    ],
)  # fmt: skip
def test_a_document_with_other_content_is_not_as_committed(change: dict[str, Any]) -> None:
    assert not is_as_committed(committed() | change)


class Odd(Contact):
    """A contact with an id of somebody's own choice."""

    odd_id = ""

    @property
    def aggregate_id(self) -> str:
        return self.odd_id


@pytest.mark.parametrize("odd", ["2026-03-01T12:00:00Z", "2026-03-01T", "/Date(1714557600000)/"])
def test_an_id_that_a_host_would_rewrite_is_refused(odd: str) -> None:
    contact = Odd.load(a_contact().state)
    contact.odd_id = odd
    with pytest.raises(Unpublishable, match="the partitionKey of a contact looks like a date"):
        event_item(contact, an_event(), ORIGIN, ttl=1)


@pytest.mark.parametrize(("value", "said"), [(2**53, "beyond 2^53"), ("\ud800", "lone surrogate")])
def test_what_readers_of_json_do_not_agree_on_is_refused(value: object, said: str) -> None:
    class Broken(ContactNameUpdatedEvent):
        odd: Any = value

        def model_dump(self, **_: Any) -> dict[str, Any]:
            return {"id": str(self.id), "odd": value}

    event = Broken(**dict(an_event()))
    with pytest.raises(Unpublishable, match=re.escape(said)) as refused:
        event_item(a_contact(), event, ORIGIN, ttl=1)
    assert "ud800" not in str(refused.value)


@pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1, 10**18 + 1, 10**400])
def test_an_integer_of_a_state_that_the_store_would_change_is_refused(value: int) -> None:
    contact = a_contact()
    state = contact.state.model_copy(update={"points": [{"since": value}]})
    with pytest.raises(Unpublishable, match=re.escape("an integer of contact is beyond 2^53")) as refused:
        aggregate_item(contact, state, ttl=-1)
    assert str(value) not in str(refused.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_number_of_a_state_that_json_has_no_form_for_is_refused(value: float) -> None:
    """The store answers 400, which says to the caller that the service is not set up correctly."""

    class Measured(ContactState):
        points: float

    contact = a_contact()
    state = Measured(**dict(contact.state), points=value)
    with pytest.raises(Unpublishable, match="a number of contact is not finite"):
        aggregate_item(contact, state, ttl=-1)


@pytest.mark.parametrize("value", [2**53, 2**60, -(10**18), True, 0.1, 1e300])
def test_a_number_that_the_store_keeps_may_be_stored_again(value: object) -> None:
    """An integer beyond 2^53 that was stored before has become one that a double holds: it locks no aggregate."""
    contact = a_contact()
    state = contact.state.model_copy(update={"points": value})
    assert aggregate_item(contact, state, ttl=-1)["data"]["points"] == value


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (datetime(2026, 3, 1, 7, 2, 35, 235480, UTC), "2026-03-01T07:02:35.23548Z"),
        (datetime(2026, 3, 1, 7, 2, 35, 0, UTC), "2026-03-01T07:02:35Z"),
        (datetime(2026, 3, 1, 7, 2, 30, 500000, UTC), "2026-03-01T07:02:30.5Z"),
        (datetime(2026, 3, 1, 9, 0, 0, 1, timezone(timedelta(hours=2))), "2026-03-01T07:00:00.000001Z"),
    ],
)
def test_a_time_is_written_in_the_one_form_that_every_host_leaves_alone(at: datetime, text: str) -> None:
    event = an_event().model_copy(update={"created_at": at})
    assert event_item(a_contact(), event, ORIGIN, ttl=1)["data"]["createdAt"] == text


@pytest.mark.parametrize(
    "text",
    [
        "9999-12-31T24:00:00Z",
        "9999-12-31T24:00:00+02:00",
        "/Date(999999999999999)/",
        "/Date(-99999999999999)/",
    ],
)
@pytest.mark.parametrize("place", ["state", "event"])
def test_a_text_that_would_stop_the_feed_for_ever_is_refused(text: str, place: str) -> None:
    """The host's JSON reader raises for it, and the trigger reads the same page again without end."""
    contact = a_contact()
    contact.describe(text, at=LATER)
    changes = contact.changes()
    assert changes is not None
    store = partial(aggregate_item, contact, changes.state, ttl=-1)
    if place == "event":
        store = partial(event_item, contact, changes.events[0], ORIGIN, ttl=1)
    with pytest.raises(Unpublishable, match="outside the calendar"):
        store()


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def test_a_document_that_is_too_deep_for_the_host_is_refused() -> None:
    """62 levels: the document, its data, and 60 below the name of the field."""
    state = a_contact().state.model_copy(update={"points": nested(60)})
    aggregate_item(a_contact(), state, ttl=-1)
    state = a_contact().state.model_copy(update={"points": nested(61)})
    with pytest.raises(Unpublishable, match="nested deeper than 61 levels"):
        aggregate_item(a_contact(), state, ttl=-1)


def test_half_of_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(Unpublishable, match="surrogate pair"):
        check_storable("contact", {"points": ["\ud800"]})


@pytest.mark.parametrize(
    "text",
    ["9999-12-31T23:59:59Z", "/Date(253402300799999)/", "/Date(0)/", "see 9999-12-31T24:00:00Z", "/Date(x)/"],
)
def test_a_text_that_the_host_can_read_may_be_stored(text: str) -> None:
    contact = a_contact()
    contact.describe(text, at=LATER)
    changes = contact.changes()
    assert changes is not None
    assert aggregate_item(contact, changes.state, ttl=-1)["data"]["description"] == text
