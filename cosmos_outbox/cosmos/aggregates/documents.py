"""Aggregates and events as Cosmos items, and back: pure functions, and the only place that knows the items' shape.

An aggregate and its events share the partition key, so that one transactional batch can hold them. Aggregates of every
type are written alike.
"""

import functools
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, TypeVar

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

from cosmos_outbox.cosmos.aggregates.due import due_field
from cosmos_outbox.cosmos.aggregates.publishable import check_publishable, check_storable
from cosmos_outbox.cosmos.store.item import FENCE, Item
from cosmos_outbox.cosmos.store.partition_key import PARTITION_KEY, PartitionKeyPaths
from cosmos_outbox.cosmos.store.stored_values import (
    LARGEST_INTEGER,
    document_id,
    encodable,
    in_utc,
    is_text,
    lifetime,
    lsn,
)
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.aggregate import STORED, Aggregate, AggregateState
from cosmos_outbox.outbox.canonical import canonical
from cosmos_outbox.outbox.errors import Unpublishable
from cosmos_outbox.outbox.event import DomainEvent
from cosmos_outbox.outbox.feed import FeedEvent, OutboxEvent, Poison
from cosmos_outbox.outbox.notice import Notice
from cosmos_outbox.outbox.unit_of_work import Origin, RequestRecord, Versioned
from cosmos_outbox.telemetry.tracing import valid_state

A = TypeVar("A", bound=Aggregate[Any])

EVENT_TYPE = "domainEvent"
DIGEST = "digest"
SCHEMA_VERSION = "schemaVersion"
"""Beside ``data``, and not part of the digest: the version before must be able to check what this version stores."""
_SIGNED = ("id", "type", "aggregateType", "aggregateId", "data")
REQUEST_TYPE = "idempotencyRecord"
REACTION_TYPE, REACTION_CURSOR_TYPE = "reactionRecord", "reactionCursor"
"""What became of a message, and how far the messages of one source have come. Nothing in them is personal."""

_OF_A_TOMBSTONE = ("id", "created_at", "modified_at", "deleted_at", "deleted", "last_sequence")
"""What a deleted aggregate keeps of its state, where the state has it, beside what its class names."""

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
    if aggregate_id.startswith((FENCE, request_id(""))):
        raise Unpublishable(
            f"the id of a {aggregate.aggregate_type} begins with {FENCE} or {request_id('')}, as documents of the "
            "outbox itself do: put something before it"
        )


def aggregate_from_item(kind: type[A], item: Mapping[str, Any]) -> Versioned[A]:
    """The aggregate in an item that was read. Raises ValueError when the item is of another type."""
    if item.get("type") != kind.aggregate_type:
        raise ValueError(f"the item is not a {kind.aggregate_type}")
    return Versioned(kind.load(_state(kind, item["data"])), str(item["_etag"]))


def request_id(name: str) -> str:
    """The id of a request's record in the partition of the aggregate that it created."""
    return f"request-{name}"


def request_item(record: RequestRecord[Any], aggregate: Aggregate[Any], state: AggregateState) -> Item:
    """The item of the record of the request that made this aggregate, with the state that is stored beside it."""
    first_answer = state.model_dump(mode="json", by_alias=True)
    data = {"fingerprint": record.fingerprint, aggregate.aggregate_type: first_answer}
    return _record_item(record.name, aggregate.partition_key, data, ttl=record.lifetime_seconds)


def erased_request_item(aggregate: Aggregate[Any], *, ttl: int) -> Item:
    """The item that takes the place of an aggregate's record: it holds nothing of the request or its answer."""
    return _record_item(aggregate.aggregate_id, aggregate.partition_key, {"erased": True}, ttl=ttl)


def _record_item(name: str, partition_key: str, data: Item, *, ttl: int) -> Item:
    return {
        "id": request_id(name),
        "partitionKey": partition_key,
        "type": REQUEST_TYPE,
        "data": data,
        "ttl": ttl,
    }


def request_from_item(kind: type[A], item: Mapping[str, Any]) -> RequestRecord[A]:
    """The record in an item that was read. Raises KeyError or ValueError when the item holds no record."""
    data, name = item["data"], item["id"].removeprefix(request_id(""))
    if data.get("erased"):
        return RequestRecord(name, "", None, item["ttl"])
    aggregate = kind.load(_state(kind, data[kind.aggregate_type]))
    return RequestRecord(name, data["fingerprint"], aggregate, item["ttl"])


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
    """The fields of an event's data that tell what caused the event."""
    told = {
        "correlationId": origin.correlation_id,
        "traceparent": origin.traceparent or None,
        "tracestate": origin.tracestate or None,
        "causationId": origin.causation_id,
        "causedBy": origin.caused_by,
    }
    return {name: value for name, value in told.items() if value is not None or name == "correlationId"}


def sealed(item: Item, *, schema_version: int, ttl: int, paths: PartitionKeyPaths = PARTITION_KEY) -> Item:
    """An event document that is to be stored, with its digest. Raises Unpublishable."""
    check_publishable(item, paths)
    return item | {DIGEST: digest(item, paths), SCHEMA_VERSION: schema_version, "ttl": ttl}


def notice_document(notice: Notice, *, partition_key: Any, paths: PartitionKeyPaths = PARTITION_KEY) -> Item:
    """The event document of a notice, which is stored in the parking lot alone. A broken key is the aggregate's id."""
    key = paths.valid(partition_key)
    item: Item = {
        "id": notice.id,
        **paths.fields(paths.made_up(notice.aggregate.id) if key is None else key),
        "type": EVENT_TYPE,
        "aggregateType": notice.aggregate.type,
        "aggregateId": notice.aggregate.id,
        "data": notice.data,
    }
    return item | {DIGEST: digest(item, paths), SCHEMA_VERSION: notice.event.schema_version}


def digest(item: Mapping[str, Any], paths: PartitionKeyPaths = PARTITION_KEY) -> str:
    """What tells whether an event document is as it was committed. Raises ValueError for what no digest can be made of.

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


class _EventData(BaseModel):
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
        event_id, aggregate = document_id(item), self._aggregate(item)
        try:
            data = _EventData.model_validate(item.get("data"))
        except ValidationError as problems:
            return self._poison(item, aggregate, f"the document is no valid event: {_wrong_fields(problems)}")
        except Exception as error:  # noqa: BLE001 - whatever one document makes raise, it is that document's fault
            return self._poison(item, aggregate, f"the document cannot be read ({type(error).__name__})")
        if aggregate is None:
            return self._poison(
                item,
                None,
                "the document has no valid aggregate type and id: each must be 1 to 128 characters of text",
            )
        owner = item["data"].get(f"{aggregate.type}Id", aggregate.id)
        if (data.id, owner) != (event_id, aggregate.id):
            return self._poison(
                item, aggregate, "the document's data names another event or aggregate than the document"
            )
        return OutboxEvent(
            **dict(data),
            aggregate=aggregate,
            schema_version=_schema_version(item),
            lsn=lsn(item),
            partition=self._partition(item),
            lifetime=lifetime(item),
            data=item["data"],
            document=item,
        )

    def _aggregate(self, item: Mapping[str, Any]) -> AggregateKey | None:
        aggregate_type = item.get("aggregateType", self.untyped)
        aggregate_id = item.get("aggregateId", self.paths.raw(item))
        if _is_name(aggregate_type) and _is_name(aggregate_id):
            return AggregateKey(aggregate_type, aggregate_id)
        return None

    def _partition(self, item: Mapping[str, Any]) -> str:
        key = self.paths.of(item)
        return "" if key is None else self.paths.name(key)

    def _poison(self, item: Mapping[str, Any], aggregate: AggregateKey | None, reason: str) -> Poison:
        partition = self._partition(item)
        return Poison(
            document_id(item), aggregate, reason, lsn(item), lifetime(item), item, partition=partition
        )


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
    """The data of a deleted aggregate: nothing personal. Raises TypeError: too little of it is left to be known by."""
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
            f"{kind.__name__}: a deleted one is not known by what it keeps ({', '.join(sorted(kept))}): name in "
            "kept_after_deletion what deleted, aggregate_id and partition_key are made of"
        )
    return data


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= _ID_LENGTH and is_text(value)


def _schema_version(item: Mapping[str, Any]) -> int | None:
    version = item.get(SCHEMA_VERSION)
    return version if type(version) is int and 0 < version <= LARGEST_INTEGER else None
