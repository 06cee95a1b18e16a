"""What the operators' calls take and give, by the names of their functions; tests hold each to real answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from pydantic.alias_generators import to_camel

from cosmos_outbox.cosmos.upkeep.event_list import EventState
from cosmos_outbox.functions.operator.operations import Discard
from cosmos_outbox.http.components import Components, Schema, SchemaForm
from cosmos_outbox.http.parameters import TEXT, parameter
from cosmos_outbox.inbox.progress import Counts
from cosmos_outbox.inbox.set_aside import RecordState
from cosmos_outbox.operations.lease_status import Holding
from cosmos_outbox.operations.views.names import PathNames
from cosmos_outbox.outbox.hindrance import Hindrance
from cosmos_outbox.outbox.parking_lot import ParkedState

_NUMBER: Schema = {"type": "integer"}
_FRACTION: Schema = {"type": "number"}
_BOOL: Schema = {"type": "boolean"}
_TIME: Schema = {"type": "string", "format": "date-time"}
_ANYTHING: Schema = {"type": "object"}
_RECORD: Schema = {"type": "string", "examples": ["0" * 32]}


@dataclass(frozen=True)
class _Call:
    gives: str = ""
    """The name of a schema; without one the call is answered 204."""
    problems: tuple[int, ...] = ()
    """Beside those that every call may end with."""
    body: str = ""
    uses_store: bool = True
    """Then it may be throttled, and the store may be away."""


_DISCARD = _Call("", (404, 409, 413, 415), body="DiscardInput")
_CALLS = {
    "health": _Call("Health"),
    "get_dependencies": _Call("Dependencies", uses_store=False),
    "get_instance": _Call("Instance", uses_store=False),
    "get_relay": _Call("Relay"),
    "list_events": _Call("EventPage", (404,)),
    "list_parked": _Call("ParkedPage"),
    "get_parked": _Call("Parked", (404,)),
    "discard_parked": _DISCARD,
    "replay_parked": _Call("Replayed", (404, 409)),
    "get_subscriber": _Call("Subscriber"),
    "list_set_aside": _Call("SetAsidePage"),
    "get_set_aside": _Call("SetAside", (404,)),
    "apply_set_aside": _Call("", (404, 409)),
    "discard_set_aside": _DISCARD,
    "collect_dead_letters": _Call("Collected"),
}  # fmt: skip


def described(function: str, names: Sequence[PathNames], components: Components) -> dict[str, Any] | None:
    """Body and answers of a function's call; None: it is none of the operators'.

    A second subscriber's functions have its name at the end of theirs.
    """
    if function == "get_operations_page":
        page = {"description": "OK", "headers": {"ETag": {}}, "content": {"text/html": {"schema": TEXT}}}
        known = {"description": "The caller has this version", "headers": {"ETag": {}}}
        return {"parameters": [parameter("If-None-Match")], "responses": {"200": page, "304": known}}
    call = next((each for name, each in _CALLS.items() if f"{function}_".startswith(f"{name}_")), None)
    if call is None:
        return None
    schemas = _schemas(names)

    def named(name: str) -> Schema:
        if name == f"{Discard.__name__}{SchemaForm.INPUT}":
            return components.of(Discard, SchemaForm.INPUT)
        return components.named(name, schemas[name])

    told: dict[str, Any] = {"responses": {}}
    if call.body:
        content = {"schema": named(call.body), "example": components.example(named(call.body))}
        told["requestBody"] = {"required": True, "content": {"application/json": content}}
    if call.gives:
        answer = {"schema": named(call.gives)}
        told["responses"]["200"] = {"description": "OK", "content": {"application/json": answer}}
    else:
        told["responses"]["204"] = {"description": "Done"}
    for status in (*call.problems, *((429, 503) if call.uses_store else ())):
        told["responses"][str(status)] = {}
    return told


def parameters(route: str, query: Sequence[str], names: Sequence[PathNames]) -> list[dict[str, Any]]:
    """Those in the path and in the query of an operators' call."""
    own = {
        "id": _RECORD,
        "path": _one_of(*(each.path for each in names)),
        "before": _NUMBER | {"minimum": 1, "maximum": 2**53},
        "state": _one_of("parked", "discarded") | {"default": "parked"},
    }
    in_path = [name for name in ("path", "id") if f"{{{name}}}" in route]
    return [parameter(name, own[name], "path") for name in in_path] + [
        parameter(name, own.get(name), "query") for name in query
    ]


def _schemas(names: Sequence[PathNames]) -> Mapping[str, Schema]:
    owners = {each.owner: _maybe(TEXT) for each in names}
    parked = {
        "id": TEXT, "eventId": TEXT, **owners, "aggregateType": _maybe(TEXT), "action": _maybe(TEXT),
        "sequence": _maybe(_NUMBER), "reason": TEXT, "parkedAt": _TIME,
        "state": _one_of(*(state.value for state in ParkedState)), "notice": _BOOL, "attempts": _NUMBER,
        "lastAttemptAt": _maybe(_TIME),
    }  # fmt: skip
    aside = {
        "id": TEXT, "state": _one_of(*(state.value for state in RecordState)), "reason": TEXT, "setAsideAt": _TIME,
        "ageSeconds": _NUMBER, "attempts": _NUMBER, "eventId": _maybe(TEXT), **owners,
        "aggregateType": _maybe(TEXT), "action": _maybe(TEXT), "sequence": _maybe(_NUMBER),
    }  # fmt: skip
    return {
        "Health": _answer(status={"const": "healthy"}),
        "Relay": _answer(
            late=_BOOL, eventsAtRisk=_BOOL, parkedEvents=_NUMBER, **{each.count: _NUMBER for each in names},
            averageWaitingSeconds=_maybe(_FRACTION), missingLeases=_list(TEXT),
            failures=_list(_answer(reason=_one_of(*Hindrance), at=_TIME, detail=TEXT)),
            leases=_list(
                _answer(
                    lease=TEXT, owner=_maybe(TEXT), lag=_NUMBER,
                    oldestWaitingSeconds=_maybe(_NUMBER),
                    averageWaitingSeconds=_maybe(_FRACTION), state=_one_of(*Holding), ttlUsed=_FRACTION,
                    position=_maybe(_NUMBER), newest=_maybe(_NUMBER),
                )
            ),
        ),
        "Dependencies": _answer(
            items=_list(_answer(name=TEXT, ok=_BOOL, milliseconds=_NUMBER, detail=_maybe(TEXT)))
        ),
        "Instance": _answer(
            id=TEXT, startedAt=_TIME, forwarded=_NUMBER, forwardedPerSecond=_FRACTION,
            aggregates=_list(_answer(type=TEXT, path=TEXT, owner=TEXT, count=TEXT)), lists=_list(TEXT),
            settings=_ANYTHING,
        ),
        "EventPage": _answer(
            **dict.fromkeys(owners, TEXT), aggregateType=TEXT,
            items=_list(
                _answer(
                    eventId=TEXT, sequence=_maybe(_NUMBER), action=_maybe(TEXT), createdAt=_maybe(TEXT),
                    correlationId=_maybe(TEXT), state=_one_of(*EventState), parkingId=_maybe(TEXT),
                )
            ),
            before=_maybe(_NUMBER),
        ),
        "ParkedPage": _page(_parked(parked), discardedAfterSeconds=_NUMBER),
        "Parked": _parked(parked | {"document": _ANYTHING}),
        "Replayed": _answer(replayed=_NUMBER, remaining=_BOOL),
        "Subscriber": _answer(
            setAside={"type": "object", "additionalProperties": _NUMBER}, lastLook=_maybe(_round("endedAt")),
            lastSweep=_maybe(_round("endedAt")), sweep=_maybe(_round("beganAt")),
        ),
        "SetAsidePage": _page(_answer(**aside)),
        "SetAside": _answer(**aside, message=_maybe(_answer(body=TEXT, properties=_ANYTHING))),
        "Collected": _answer(collected=_NUMBER, emptied=_BOOL),
    }  # fmt: skip


def _parked(properties: Mapping[str, Schema]) -> Schema:
    schema = _answer(**properties)
    schema["properties"] |= {"discardedAt": _TIME, "discardReason": TEXT}  # of one that was discarded
    return schema


def _round(at: str) -> Schema:
    return _answer(**{at: _maybe(_TIME)}, **{to_camel(field.name): _NUMBER for field in fields(Counts)})


def _answer(**properties: Schema) -> Schema:
    """All properties are there in every answer; more may come in a later version."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def _page(item: Schema, **more: Schema) -> Schema:
    return _answer(items=_list(item), continuationToken=_maybe(TEXT), **more)


def _maybe(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _list(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def _one_of(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}
