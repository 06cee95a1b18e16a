"""The schemas of bodies and answers: those of contacts are the models', tests hold the others to real answers."""

from dataclasses import fields
from typing import Any

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from application.directory import DirectoryEntry, Field
from cosmos_outbox.contracts.schemas import Plain, Schema, without_limits
from cosmos_outbox.functions.operator import operations
from cosmos_outbox.http.errors import MOST_ERRORS
from cosmos_outbox.http.request import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE
from cosmos_outbox.inbox.progress import Counts
from cosmos_outbox.inbox.set_aside import RecordState
from cosmos_outbox.operations.lease_status import Holding
from cosmos_outbox.operations.past_events import EventState
from cosmos_outbox.operations.views.names import names_of
from cosmos_outbox.outbox.hindrance import Hindrance
from cosmos_outbox.outbox.parking_lot import ParkedState
from domain.values import ContactDetails
from infra.bootstrap import service
from infra.directory_http import LONGEST

_TEXT: Schema = {"type": "string"}
_NUMBER: Schema = {"type": "integer"}
_FRACTION: Schema = {"type": "number"}
_BOOL: Schema = {"type": "boolean"}
_TIME: Schema = {"type": "string", "format": "date-time"}
_ID: Schema = {"type": "string", "format": "uuid"}
_ANYTHING: Schema = {"type": "object"}


def ref(name: str) -> Schema:
    """The schema of this name."""
    return {"$ref": f"#/components/schemas/{name}"}


def _maybe(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _list(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def _one_of(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


def _answer(**properties: Schema) -> Schema:
    """All properties are there in every answer; more may come in a later version."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def _page(item: Schema, **more: Schema) -> Schema:
    return _answer(items=_list(item), continuationToken=_maybe(_TEXT), **more)


def _of(model: type[BaseModel]) -> Schema:
    """A model's schema with the schemas of its parts inside."""
    schema = model.model_json_schema(schema_generator=Plain)
    parts: dict[str, Schema] = schema.pop("$defs", {})

    def whole(node: Any) -> Any:
        if isinstance(node, list):
            return [whole(inner) for inner in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            return whole(parts[node["$ref"].rpartition("/")[2]])
        return {
            name: whole(inner) for name, inner in node.items() if name != "title" or isinstance(inner, dict)
        }

    result: Schema = whole(schema)
    return result


def _closed(schema: Any, *, patch: bool = False) -> Any:
    """A body: unknown fields are refused. ``patch``: nothing is required."""
    if isinstance(schema, list):
        return [_closed(inner, patch=patch) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _closed(inner, patch=patch) for name, inner in schema.items()}
    if "properties" in closed:
        closed |= {"additionalProperties": False}
        if patch:
            closed.pop("required", None)
    return closed


def _shown(model: type[BaseModel], **more: Schema) -> Schema:
    """An answer that shows all fields of a model, and more."""
    return _answer(**without_limits(_of(model))["properties"], **more)


OPERATIONS = [names_of(kind) for kind in service.aggregates]
"""What operators call each type of aggregate."""

_OWNERS = {names.owner: _maybe(_TEXT) for names in OPERATIONS}

_PARKED = {
    "id": _TEXT, "eventId": _TEXT, **_OWNERS, "aggregateType": _maybe(_TEXT), "action": _maybe(_TEXT),
    "sequence": _maybe(_NUMBER), "reason": _TEXT, "parkedAt": _TIME,
    "state": _one_of(*(state.value for state in ParkedState)), "notice": _BOOL, "attempts": _NUMBER,
    "lastAttemptAt": _maybe(_TIME),
}  # fmt: skip
_DISCARDED = {"discardedAt": _TIME, "discardReason": _TEXT}
"""Only of a parked event that was discarded."""

_ASIDE = {
    "id": _TEXT, "state": _one_of(*(state.value for state in RecordState)), "reason": _TEXT, "setAsideAt": _TIME,
    "ageSeconds": _NUMBER, "attempts": _NUMBER, "eventId": _maybe(_TEXT), **_OWNERS,
    "aggregateType": _maybe(_TEXT), "action": _maybe(_TEXT), "sequence": _maybe(_NUMBER),
}  # fmt: skip


def _parked(**more: Schema) -> Schema:
    schema = _answer(**_PARKED, **more)
    schema["properties"] |= _DISCARDED
    return schema


def _round(at: str) -> Schema:
    return _answer(**{at: _maybe(_TIME)}, **{to_camel(field.name): _NUMBER for field in fields(Counts)})


_READ_ONLY: dict[str, Schema] = {
    "id": _ID, "createdAt": _TIME, "modifiedAt": _maybe(_TIME), "sequence": _NUMBER
}  # fmt: skip
_NEW_CONTACT: Schema = _closed(_of(ContactDetails))

SCHEMAS: dict[str, Schema] = {
    "NewContact": _NEW_CONTACT,
    "WholeContact": {**_NEW_CONTACT, "properties": _NEW_CONTACT["properties"] | _READ_ONLY},
    "ContactPatch": _closed(_of(ContactDetails), patch=True),
    "Contact": _shown(ContactDetails, **_READ_ONLY),
    "ChangedContact": {"anyOf": [ref("Contact"), _answer(id=_ID, sequence=_NUMBER)]},
    "ContactPage": _page(ref("Contact")),
    "DirectoryPage": _page(
        _shown(
            DirectoryEntry, id=_TEXT, sequence=_NUMBER, appliedAt=_TIME, lateSeconds=_maybe(_FRACTION),
            blockedSince=_maybe(_TIME),
        )
    ),
    "Discard": _closed(_of(operations.Discard)),
    "Health": _answer(status={"const": "healthy"}),
    "Relay": _answer(
        late=_BOOL,
        eventsAtRisk=_BOOL,
        parkedEvents=_NUMBER,
        **{names.count: _NUMBER for names in OPERATIONS},
        missingLeases=_list(_TEXT),
        averageWaitingSeconds=_maybe(_FRACTION),
        failures=_list(_answer(reason=_one_of(*Hindrance), at=_TIME, detail=_TEXT)),
        leases=_list(
            _answer(
                lease=_TEXT, owner=_maybe(_TEXT), lag=_NUMBER, oldestWaitingSeconds=_maybe(_NUMBER),
                averageWaitingSeconds=_maybe(_FRACTION),
                state=_one_of(*Holding), ttlUsed=_FRACTION, position=_maybe(_NUMBER), newest=_maybe(_NUMBER),
            )
        ),
    ),
    "Dependencies": _answer(
        items=_list(_answer(name=_TEXT, ok=_BOOL, milliseconds=_NUMBER, detail=_maybe(_TEXT)))
    ),
    "Instance": _answer(
        id=_TEXT, startedAt=_TIME, forwarded=_NUMBER, forwardedPerSecond=_FRACTION,
        aggregates=_list(_answer(type=_TEXT, path=_TEXT, owner=_TEXT, count=_TEXT)), lists=_list(_TEXT),
        settings=_ANYTHING,
    ),
    "History": _answer(
        **dict.fromkeys(_OWNERS, _TEXT), aggregateType=_TEXT, lastSequence=_maybe(_NUMBER), deleted=_BOOL,
        relay=_answer(
            asOf=_TIME, lease=_maybe(_TEXT), position=_maybe(_NUMBER), waitingSince=_maybe(_TIME)
        ),
        events=_list(
            _answer(
                eventId=_TEXT, sequence=_maybe(_NUMBER), action=_maybe(_TEXT), changed=_list(_TEXT),
                createdAt=_maybe(_TIME), storedAt=_maybe(_TIME), expiresAt=_maybe(_TIME),
                state=_one_of(*EventState), parkingId=_maybe(_TEXT), correlationId=_maybe(_TEXT),
                traceId=_maybe(_TEXT),
            )
        ),
        expired=_list(_answer(first=_NUMBER, last=_NUMBER)), before=_maybe(_NUMBER),
    ),
    "ParkedPage": _page(_parked(), discardedAfterSeconds=_NUMBER),
    "Parked": _parked(document=_ANYTHING),
    "Replayed": _answer(replayed=_NUMBER, remaining=_BOOL),
    "Subscriber": _answer(
        setAside={"type": "object", "additionalProperties": _NUMBER}, lastLook=_maybe(_round("endedAt")),
        lastSweep=_maybe(_round("endedAt")), sweep=_maybe(_round("beganAt")),
    ),
    "SetAsidePage": _page(_answer(**_ASIDE)),
    "SetAside": _answer(**_ASIDE, message=_maybe(_answer(body=_TEXT, properties=_ANYTHING))),
    "Collected": _answer(collected=_NUMBER, emptied=_BOOL),
    "Problem": _answer(
        type=_TEXT, title=_TEXT, status=_NUMBER, detail=_TEXT,
        errors={**_list(_answer(field=_TEXT, reason=_TEXT)), "maxItems": MOST_ERRORS}, correlationId=_maybe(_TEXT),
    ),
}  # fmt: skip
"""Every body and every answer."""

PARAMETERS: dict[str, Schema] = {
    "id": _TEXT,
    "path": _one_of(*(names.path for names in OPERATIONS)),
    "pageSize": _NUMBER | {"minimum": 1, "maximum": MAX_PAGE_SIZE, "default": DEFAULT_PAGE_SIZE},
    "continuationToken": _TEXT | {"minLength": 1},
    "before": _NUMBER | {"minimum": 1},
    "state": _one_of("parked", "discarded") | {"default": "parked"},
    "sort": _one_of(*Field) | {"default": Field.NAME.value},
    **{field.value: _TEXT | {"minLength": 1, "maxLength": LONGEST} for field in Field},
}
"""What stands in a path or in a query."""
