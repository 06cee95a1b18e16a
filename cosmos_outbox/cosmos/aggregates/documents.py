"""Converts aggregates and events to Cosmos items, and back: no I/O, and no other module knows the items' shape.

An aggregate and its events share the partition key, so that one transactional batch can hold them. Aggregates of every
type are written alike.

When an aggregate is due stands in its own document, and follows from the state that is stored beside it.

The text sorts as time does: whole seconds in UTC, and never earlier than what the state says.

Nothing is stored that the feed's host cannot read, the store would change, or readers of JSON read differently.

The host is the Cosmos DB trigger of Azure Functions, which reads documents with Newtonsoft.Json (azure-functions-host
issue 7114).
"""

import functools
import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Generic, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    create_model,
)
from pydantic.alias_generators import to_camel

from cosmos_outbox.cosmos.store.partition_key import (
    LARGEST_INTEGER,
    NO_ITEM,
    PARTITION_KEY,
    Item,
    PartitionKeyPaths,
    at,
    document_id,
    encodable,
    in_utc,
    is_text,
    lsn,
)
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox.aggregate import STORED, Aggregate, AggregateState, Origin, Versioned
from cosmos_outbox.outbox.canonical import canonical, check, is_a_double
from cosmos_outbox.outbox.errors import Unpublishable
from cosmos_outbox.outbox.event import DomainEvent
from cosmos_outbox.outbox.feed import FeedEvent, OutboxEvent, Poison, SkipMarker
from cosmos_outbox.telemetry.tracing import valid_state

A = TypeVar("A", bound=Aggregate[Any])


@dataclass(frozen=True)
class KeyRecord(Generic[A]):
    """The outcome of a request with a key, kept so that its repetition gets the same answer.

    Its existence proves that the request has an outcome (``created_only``).
    """

    name: str
    """The record's name, unique in the partition."""
    fingerprint: str
    """A digest of the caller's request."""
    sequence: int = 0
    """The aggregate's last sequence after the request; the commit sets it for a created aggregate."""
    refused: int | None = None
    """The status with which the aggregate refused the request; None: it succeeded."""
    made: A | None = None
    """The aggregate, if the request created it: the first answer. Nothing else in a record is personal data."""
    erased: bool = False
    """Whether the aggregate was deleted, and with it the first answer."""
    lifetime_seconds: int | None = None
    """The lifetime of the stored record; None: that of the setting."""


_NO_DATE = re.compile(r"9999-12-31T24:|/Date\((-?\d+)")
_MILLISECONDS = range(-62_135_596_800_000, 253_402_300_800_000)
"""The moments that a .NET DateTime can hold, in milliseconds since 1970."""
_LIKE_A_DATE = re.compile(r"\d{4}-\d\d-\d\dT|/Date\(")
"""The texts that Newtonsoft.Json takes for dates (azure-functions-host issue 7114)."""


MOST_LEVELS = 62
"""The levels of objects and lists in a document.

.NET's readers of JSON stop at 64 (``MaxDepth`` of System.Text.Json and, from 13.0.1 on, of Newtonsoft.Json), and a page
of the feed puts two around each document (azure-functions-dotnet-worker issue 1226).
"""


def check_feed_can_be_read(what: str, data: Any, *, around: int) -> None:
    """Raise Unpublishable for what no reader of the change feed's page would get past.

    ``around``: the levels of the document around ``data``. .NET raises for JSON that is nested too deeply, and
    Newtonsoft.Json for a text that looks like a date outside .NET's calendar. The trigger then reads the same page
    without end, and no function ever sees the document.
    """
    if _levels(data) + around > MOST_LEVELS:
        raise Unpublishable(
            f"{what} is nested deeper than {MOST_LEVELS - around} levels, which the change feed's host cannot read: "
            "make it flatter, or store the inner part as text"
        )
    for text in _values(data):
        match = _NO_DATE.match(text) if isinstance(text, str) else None
        if match and (match[1] is None or int(match[1]) not in _MILLISECONDS):
            raise Unpublishable(
                f"a text of {what} looks like a date outside the calendar, which the change feed's "
                "host cannot read: put something before it"
            )


def _levels(data: Any) -> int:
    """Returns the depth of nested objects and lists; the search ends at one more than allowed."""
    levels, level = 0, [data]
    while (
        level := [each for each in level if isinstance(each, dict | list | tuple)]
    ) and levels <= MOST_LEVELS:
        levels += 1
        level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
    return levels


def _values(data: Any) -> Iterator[Any]:
    """Each name and each value in JSON that is neither an object nor a list."""
    waiting = [data]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield from value
            waiting += value.values()
        elif isinstance(value, list | tuple):
            waiting += value
        else:
            yield value


def check_storable(what: str, state: Any, *, around: int = 1) -> None:
    """Raise Unpublishable for a state that the store would refuse or change, or the feed could not be read past.

    ``around``: the levels of the document around the state. Cosmos DB keeps numbers as doubles. An integer that a
    double holds passes however large it is: one that was stored before has become such a one, and must not lock its
    aggregate.
    """
    check_feed_can_be_read(what, state, around=around)
    for value in _values(state):
        if isinstance(value, str) and not is_text(value):
            raise Unpublishable(
                f"a text of {what} holds half of a surrogate pair, which is no Unicode: replace it"
            )
        if isinstance(value, int) and not is_a_double(value):
            raise Unpublishable(
                f"an integer of {what} is beyond 2^53, where the store keeps another number: write it as text"
            )
        if isinstance(value, float) and not math.isfinite(value):
            raise Unpublishable(f"a number of {what} is not finite: replace it")


def check_publishable(item: Mapping[str, Any], paths: PartitionKeyPaths = PARTITION_KEY) -> None:
    """Raise Unpublishable for an event document that not every reader would read as it was written."""
    check_feed_can_be_read(item["aggregateType"], item["data"], around=1)
    texts = [("aggregateId", item.get("aggregateId")), *((path[1:], at(item, path)) for path in paths.paths)]
    for name, text in texts:
        if isinstance(text, str) and _LIKE_A_DATE.match(text):
            raise Unpublishable(
                f"the {name} of a {item['aggregateType']} looks like a date, which the change feed's host would "
                "rewrite: put something before it"
            )
    try:
        check(item)
    except ValueError as fault:
        raise Unpublishable(f"an event of {item['aggregateType']} cannot be published: {fault}") from None


DUE = "due"


def due_field(kind: type[Aggregate[Any]], state: AggregateState) -> Item:
    """The field of the document of an aggregate in this state; none, if it is never due. Raises Unpublishable."""
    stored = kind.load(state)
    due = None if stored.deleted else stored.due
    if due is None:
        return {}
    try:
        return {DUE: due_text(due)}
    except (ValueError, OverflowError) as error:
        raise Unpublishable(
            f"{kind.__name__}.due is no time that can be stored ({error}): let it be one with a zone, such "
            "as datetime.now(UTC) + timedelta(minutes=30), or None for never"
        ) from error


def due_text(at: datetime) -> str:
    """The first whole second that is not before this time. Raises ValueError, OverflowError."""
    if at.tzinfo is None:
        raise ValueError("it has no zone")
    return _written(at.astimezone(UTC) + timedelta(seconds=1 if at.microsecond else 0))


def text_of_now(now: datetime) -> str:
    """Returns the text up to which due times are over now."""
    return _written(now.astimezone(UTC))


def due_time(text: str) -> datetime:
    """The time in a document. Raises ValueError."""
    return datetime.strptime(text, _FORM).replace(tzinfo=UTC)


_FORM = "%Y-%m-%dT%H:%M:%SZ"


def _written(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}".rjust(20, "0")


EVENT_TYPE = "domainEvent"
DIGEST = "digest"
SCHEMA_VERSION = "schemaVersion"
"""Beside ``data``, and not part of the digest: the version before must be able to check what this version stores."""
_SIGNED = ("id", "type", "aggregateType", "aggregateId", "data")
REQUEST_TYPE, CHANGE_TYPE = "idempotencyRecord", "changeRecord"
"""The types of the outcomes of requests with a key: one that made an aggregate, one that changed it."""
REACTION_TYPE, REACTION_CURSOR_TYPE = "reactionRecord", "reactionCursor"
"""The types of a message's outcome, and of how far one source's messages have come. Nothing in them is personal."""

_OF_A_TOMBSTONE = ("id", "created_at", "modified_at", "deleted_at", "deleted", "last_sequence")
"""The fields of its state that a deleted aggregate keeps, if the state has them, beside those its class names."""

_ID_LENGTH = 128
"""The longest MessageId and SessionId that Service Bus takes, in characters
(https://learn.microsoft.com/azure/service-bus-messaging/service-bus-quotas)."""


def aggregate_item(aggregate: Aggregate[Any], state: AggregateState, *, ttl: int) -> Item:
    """The item of an aggregate with its new state; the item expires ``ttl`` seconds after it is written (-1: never).

    Raises Unpublishable: the store would change the state, or the change feed could not be read past the item.
    """
    data = _tombstone(aggregate, state) if aggregate.deleted else state.model_dump(mode="json", by_alias=True)
    check_storable(aggregate.aggregate_type, data)
    return {
        "id": aggregate.aggregate_id,
        "partitionKey": aggregate.partition_key,
        "type": aggregate.aggregate_type,
        "data": data,
        **(due_field(type(aggregate), state) if aggregate.can_be_due() else {}),
        "ttl": ttl,
    }


def check_id(aggregate: Aggregate[Any]) -> None:
    """Raise Unpublishable for an id that no message can have, or under which the outbox stores documents of its own."""
    aggregate_id = aggregate.aggregate_id
    if not _is_name(aggregate_id):
        raise Unpublishable(
            f"the id of a {aggregate.aggregate_type} has {len(aggregate_id)} characters, and its events could not be "
            f"sent: an id has 1 to {_ID_LENGTH} characters"
        )
    if aggregate_id.startswith((NO_ITEM, request_id(""))):
        raise Unpublishable(
            f"the id of a {aggregate.aggregate_type} begins with {NO_ITEM} or {request_id('')}, as documents of the "
            "outbox itself do: put something before it"
        )


def aggregate_from_item(kind: type[A], item: Mapping[str, Any]) -> Versioned[A]:
    """The aggregate in an item that was read. Raises ValueError when the item is of another type."""
    if item.get("type") != kind.aggregate_type:
        raise ValueError(f"the item is not a {kind.aggregate_type}")
    return Versioned(kind.load(_state(kind, item["data"])), str(item["_etag"]))


def request_id(name: str) -> str:
    """The id of a request's record: an aggregate can have none that begins like it."""
    return f"request-{name}"


def record_item(record: KeyRecord[Any], partition_key: str, *, ttl: int) -> Item:
    """The item of the record of a request with a key."""
    data: Item
    if record.made is None:
        data = {"fingerprint": record.fingerprint, "sequence": record.sequence, "refused": record.refused}
        return _record_item(CHANGE_TYPE, record.name, partition_key, data, ttl=ttl)
    first_answer = record.made.state.model_dump(mode="json", by_alias=True)
    data = {"fingerprint": record.fingerprint, record.made.aggregate_type: first_answer}
    return _record_item(REQUEST_TYPE, record.name, partition_key, data, ttl=ttl)


def erased_record_item(aggregate: Aggregate[Any], *, ttl: int) -> Item:
    """The item that takes the place of an aggregate's record: it holds nothing of the request or its answer."""
    return _record_item(
        REQUEST_TYPE, aggregate.aggregate_id, aggregate.partition_key, {"erased": True}, ttl=ttl
    )


def _record_item(kind: str, name: str, partition_key: str, data: Item, *, ttl: int) -> Item:
    return {"id": request_id(name), "partitionKey": partition_key, "type": kind, "data": data, "ttl": ttl}


def record_from_item(kind: type[A], item: Mapping[str, Any]) -> KeyRecord[A]:
    """The record in an item that was read. Raises KeyError or ValueError when the item holds no record."""
    data, name = item["data"], item["id"].removeprefix(request_id(""))
    if data.get("erased"):
        return KeyRecord(name, "", erased=True)
    if item["type"] == CHANGE_TYPE:
        return KeyRecord(name, data["fingerprint"], data["sequence"], data["refused"])
    made = kind.load(_state(kind, data[kind.aggregate_type]))
    return KeyRecord(name, data["fingerprint"], made.state.last_sequence, made=made)


def event_item(aggregate: Aggregate[Any], event: DomainEvent, origin: Origin, *, ttl: int) -> Item:
    """The item of an event; the item expires ``ttl`` seconds after it is written. Raises Unpublishable."""
    data = event.model_dump(mode="json", by_alias=True) | caused_by(origin)
    item: Item = {
        "id": str(event.id),
        "partitionKey": aggregate.partition_key,
        "type": EVENT_TYPE,
        "aggregateType": aggregate.aggregate_type,
        "data": data,
    }
    if aggregate.aggregate_id != aggregate.partition_key:
        item["aggregateId"] = aggregate.aggregate_id
    return sealed(item, schema_version=event.schema_version, ttl=ttl)


def caused_by(origin: Origin) -> Item:
    """The fields of an event's data that name what caused the event."""
    cause = {
        "correlationId": origin.correlation_id,
        "traceparent": origin.traceparent or None,
        "tracestate": origin.tracestate or None,
        "causationId": origin.causation_id,
        "causedBy": origin.caused_by,
    }
    return {name: value for name, value in cause.items() if value is not None or name == "correlationId"}


def sealed(item: Item, *, schema_version: int, ttl: int, paths: PartitionKeyPaths = PARTITION_KEY) -> Item:
    """An event document that is to be stored, with its digest. Raises Unpublishable."""
    check_publishable(item, paths)
    return item | {DIGEST: digest(item, paths), SCHEMA_VERSION: schema_version, "ttl": ttl}


def skip_marker_document(
    skip_marker: SkipMarker, *, partition_key: Any, paths: PartitionKeyPaths = PARTITION_KEY
) -> Item:
    """Returns a skip marker's event document, stored in the parking lot alone. A broken key is the aggregate's id."""
    key = paths.valid(partition_key)
    item: Item = {
        "id": skip_marker.id,
        **paths.fields(paths.made_up(skip_marker.aggregate.id) if key is None else key),
        "type": EVENT_TYPE,
        "aggregateType": skip_marker.aggregate.type,
        "aggregateId": skip_marker.aggregate.id,
        "data": skip_marker.data,
    }
    return item | {DIGEST: digest(item, paths), SCHEMA_VERSION: skip_marker.event.schema_version}


def digest(item: Mapping[str, Any], paths: PartitionKeyPaths = PARTITION_KEY) -> str:
    """Returns the digest by which an event document is verified.

    Raises ValueError for what no digest can be made of.

    The digest is over the canonical form of the fields that say what is published, where, and of what. The value
    of the partition key counts, under one name, and not its paths: of a hierarchical key the list of its values.
    """
    signed = {name: item[name] for name in _SIGNED if name in item} | {"partitionKey": paths.raw(item)}
    return hashlib.sha256(canonical(signed)).hexdigest()


def is_as_committed(item: Mapping[str, Any], paths: PartitionKeyPaths = PARTITION_KEY) -> bool:
    """Whether an event document fits the digest in it; False when there is no digest."""
    try:
        return digest(item, paths) == item.get(DIGEST)
    except ValueError:
        return False


_Short = Annotated[str, Field(min_length=1, max_length=_ID_LENGTH)]
_UUID = r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"


class _EventData(BaseModel, defer_build=True):
    """The part of an event that the relay needs; all other fields are for subscribers."""

    model_config = ConfigDict(alias_generator=to_camel, strict=True, hide_input_in_errors=True)

    id: Annotated[str, Field(pattern=_UUID)]
    """Unique everywhere, since the topic drops a message whose id it has seen, whatever aggregate it is of."""
    action: _Short
    sequence: Annotated[int, Field(ge=1, le=LARGEST_INTEGER)] | None = None
    created_at: Annotated[datetime, Field(strict=False), AfterValidator(in_utc)]
    correlation_id: Annotated[str, AfterValidator(encodable)] | None = None
    traceparent: Annotated[str, AfterValidator(encodable)] | None = None
    tracestate: Annotated[str | None, BeforeValidator(valid_state)] = None
    """No event is held back because of it: where it is none, it is left out."""


@dataclass(frozen=True)
class EventReader:
    """Reads event documents as the relay sees them. Raises for no document: what cannot be read is poison."""

    untyped: str | None = None
    """The aggregate type of events that were stored without one; None: there are no such events."""
    paths: PartitionKeyPaths = PARTITION_KEY
    """Of the container that the events are stored in."""

    def events(self, items: Iterable[Mapping[str, Any]]) -> list[FeedEvent]:
        """The event documents among the items of a feed."""
        return [event for item in items if (event := self.event(item)) is not None]

    def event(self, item: Mapping[str, Any]) -> FeedEvent | None:
        """The event in an item of the feed; None when the item is no event document."""
        if item.get("type") != EVENT_TYPE:
            return None
        event_id, aggregate, key = document_id(item), self._aggregate(item), self.paths.of(item)
        stored: dict[str, Any] = {
            "lsn": lsn(item),
            "partition": "" if key is None else self.paths.name(key),
            "document": item,
        }

        def poison(reason: str) -> Poison:
            return Poison(event_id, aggregate, reason, **stored)

        try:
            data = _EventData.model_validate(item.get("data"))
        except ValidationError as problems:
            return poison(f"the document is no valid event: {_wrong_fields(problems)}")
        except Exception as error:  # noqa: BLE001 - whatever one document makes raise, it is that document's fault
            return poison(f"the document cannot be read ({type(error).__name__})")
        if aggregate is None:
            return poison(
                "the document has no valid aggregate type and id: each must be 1 to 128 characters of text"
            )
        owner = item["data"].get(f"{aggregate.type}Id", aggregate.id)
        if (data.id, owner) != (event_id, aggregate.id):
            return poison("the document's data names another event or aggregate than the document")
        return OutboxEvent(
            **dict(data),
            **stored,
            aggregate=aggregate,
            schema_version=_schema_version(item),
            data=item["data"],
        )

    def _aggregate(self, item: Mapping[str, Any]) -> AggregateKey | None:
        aggregate_type = item.get("aggregateType", self.untyped)
        aggregate_id = item.get("aggregateId", self.paths.raw(item))
        if _is_name(aggregate_type) and _is_name(aggregate_id):
            return AggregateKey(aggregate_type, aggregate_id)
        return None


def _wrong_fields(problems: ValidationError) -> str:
    """Which fields are wrong and why, without their values."""
    return "; ".join(
        f"{'.'.join(['data', *map(str, problem['loc'])])}: {problem['msg']}" for problem in problems.errors()
    )


def _state(kind: type[Aggregate[Any]], data: Any) -> AggregateState:
    if data.get("deleted") is not True:
        return kind.state_type.model_validate(data, by_alias=True, by_name=False, context=STORED)
    model = _tombstone_model(kind)
    left = model.model_validate(data, by_alias=True, by_name=False, context=STORED)
    return kind.state_type.model_construct(**{name: getattr(left, name) for name in model.model_fields})


@functools.cache
def _tombstone_model(kind: type[Aggregate[Any]]) -> type[AggregateState]:
    """The model of what a deleted aggregate keeps of its state."""
    kept = {*_OF_A_TOMBSTONE, *kind.kept_after_deletion}
    fields = {name: each for name, each in kind.state_type.model_fields.items() if name in kept}
    parts: dict[str, Any] = {name: (each.annotation, each) for name, each in fields.items()}
    return create_model(f"{kind.__name__}Tombstone", __base__=AggregateState, **parts)


def _tombstone(aggregate: Aggregate[Any], state: AggregateState) -> Item:
    """Returns the data of a deleted aggregate: nothing personal. Raises TypeError: it does not yield its key."""
    kind = type(aggregate)
    kept = {*_tombstone_model(kind).model_fields}
    data = state.model_dump(mode="json", by_alias=True, include=kept) | {"deleted": True}
    try:
        left = kind.load(_state(kind, data))
        known = left.deleted and (left.key, left.partition_key) == (aggregate.key, aggregate.partition_key)
    except AttributeError:
        known = False
    if not known:
        raise TypeError(
            f"{kind.__name__}: what is kept after a deletion ({', '.join(sorted(kept))}) is not enough: name in "
            "kept_after_deletion all fields that deleted, aggregate_id and partition_key are computed from"
        )
    return data


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= _ID_LENGTH and is_text(value)


def _schema_version(item: Mapping[str, Any]) -> int | None:
    version = item.get(SCHEMA_VERSION)
    return version if type(version) is int and 0 < version <= LARGEST_INTEGER else None
