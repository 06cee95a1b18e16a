"""HTTP for operators: how a subscriber is, and what it has set aside. Only one record's answer holds personal data."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

import azure.functions as func
from pydantic.alias_generators import to_camel

from inbox.errors import NotSetAside
from infra.http import methods, operations, request, responses
from infra.http.answering import Answering
from infra.http.responses import json_response
from outbox.errors import NotParked

if TYPE_CHECKING:
    from inbox.progress import Counts, Progress
    from inbox.set_aside import Record, RecordPage, State
    from inbox.sweep import Sweep
    from infra.subscriber import Subscriber

answering = Answering()


class Subscribing(Protocol):
    """A service that has a subscriber."""

    @property
    def subscriber(self) -> "Subscriber": ...

    @property
    def sweep(self) -> "Sweep[Any] | None":
        """None: the subscriber keeps no state that could be swept."""


def set_aside_functions(
    service: Callable[[], Subscribing], names: Sequence[operations.Names], *, path: str = ""
) -> func.Blueprint:
    """The functions, all with the admin key; ``service`` is called at the first request.

    ``path`` comes before the routes of a second subscriber of one app, and at the end of its functions' names.
    """
    before, after = f"{path}/" if path else "", f"_{path}" if path else ""
    app = func.Blueprint()  # type: ignore[no-untyped-call]  # the library does not annotate its constructor

    @app.function_name(f"get_subscriber{after}")
    @app.route(route=f"{before}subscriber", methods=methods.READING, auth_level=func.AuthLevel.ADMIN)
    @answering
    async def get_subscriber(req: func.HttpRequest) -> func.HttpResponse:
        """GET /subscriber: how much is set aside, and what the sweeps have found and healed."""
        made = service()
        counts = await made.subscriber.retrier.counts()
        if made.sweep is None:
            return subscriber_status(counts, None, None)
        return subscriber_status(
            counts, await made.sweep.lists.progress(), await made.sweep.changes.progress()
        )

    @app.function_name(f"list_set_aside{after}")
    @app.route(route=f"{before}set-aside", methods=methods.READING, auth_level=func.AuthLevel.ADMIN)
    @answering
    async def list_set_aside(req: func.HttpRequest) -> func.HttpResponse:
        """GET /set-aside?pageSize=&continuationToken=: the messages that wait or were refused, oldest first."""
        size, token = request.page_request(req)
        return listed(await service().subscriber.retrier.page(size, token), names)

    @app.function_name(f"get_set_aside{after}")
    @app.route(route=f"{before}set-aside/{{id}}", methods=methods.READING, auth_level=func.AuthLevel.ADMIN)
    @answering
    async def get_set_aside(req: func.HttpRequest) -> func.HttpResponse:
        """GET /set-aside/{id}: one record, with its message."""
        return shown(await service().subscriber.retrier.show(record_id(req)), names)

    @app.function_name(f"apply_set_aside{after}")
    @app.route(route=f"{before}set-aside/{{id}}/apply", methods=["POST"], auth_level=func.AuthLevel.ADMIN)
    @answering
    async def apply_set_aside(req: func.HttpRequest) -> func.HttpResponse:
        """POST /set-aside/{id}/apply: try one record now, after those of its aggregate that come earlier."""
        await service().subscriber.retrier.apply(record_id(req))
        return responses.no_content()

    @app.function_name(f"discard_set_aside{after}")
    @app.route(route=f"{before}set-aside/{{id}}/discard", methods=["POST"], auth_level=func.AuthLevel.ADMIN)
    @answering
    async def discard_set_aside(req: func.HttpRequest) -> func.HttpResponse:
        """POST /set-aside/{id}/discard {"reason": ...}: give one record up for good."""
        wanted, reason = record_id(req), operations.discard_reason(req)
        await service().subscriber.retrier.discard(wanted, reason)
        return responses.no_content()

    @app.function_name(f"collect_dead_letters{after}")
    @app.route(route=f"{before}dead-letters/collect", methods=["POST"], auth_level=func.AuthLevel.ADMIN)
    @answering
    async def collect_dead_letters(req: func.HttpRequest) -> func.HttpResponse:
        """POST /dead-letters/collect: move the subscription's dead letters into records."""
        found = await service().subscriber.collect()
        return json_response(200, {"collected": found.messages, "emptied": found.emptied})

    return app


def record_id(req: func.HttpRequest) -> str:
    """The id in the path; it looks like that of a parked event. Raises NotSetAside when no record can have it."""
    try:
        return operations.parking_id(req)
    except NotParked:
        raise NotSetAside("no record has this id: take an id from the list of what is set aside") from None


def listed(page: "RecordPage", names: Sequence[operations.Names]) -> func.HttpResponse:
    """200 with a page of records, without their messages, and the token of the next page."""
    items = [_summary(record, names) for record in page.items]
    return json_response(200, {"items": items, "continuationToken": page.continuation_token})


def subscriber_status(
    records: "Mapping[State, int]", rounds: "Progress | None", looks: "Progress | None"
) -> func.HttpResponse:
    """200 with the number of open records by state, and what the sweep has found.

    That is the last look at what was changed, the last whole round, and the round that is under way.
    """
    under_way = rounds if rounds and rounds.side else None
    return json_response(
        200,
        {
            "setAside": {state.value: count for state, count in records.items()},
            "lastLook": _last(looks),
            "lastSweep": _last(rounds),
            "sweep": under_way and _swept(under_way.counts, "beganAt", under_way.began_at),
        },
    )


def _last(progress: "Progress | None") -> Mapping[str, Any] | None:
    if progress is None or progress.last_counts is None:
        return None
    return _swept(progress.last_counts, "endedAt", progress.last_ended_at)


def _swept(counts: "Counts", name: str, at: datetime | None) -> Mapping[str, Any]:
    found = {to_camel(field): count for field, count in asdict(counts).items()}
    return {name: at.isoformat() if at else None, **found}


def shown(record: "Record", names: Sequence[operations.Names]) -> func.HttpResponse:
    """200 with a record and its message; null where the message was too large to keep."""
    delivery = record.delivery
    message = delivery and {
        "body": delivery.body.decode(errors="replace"),
        "properties": dict(delivery.properties),
    }
    return json_response(200, {**_summary(record, names), "message": message})


def _summary(record: "Record", names: Sequence[operations.Names]) -> Mapping[str, Any]:
    aggregate = record.aggregate
    return {
        "id": record.id,
        "state": record.state.value,
        "reason": record.reason,
        "setAsideAt": record.set_aside_at.isoformat(),
        "ageSeconds": max(0, int((datetime.now(UTC) - record.set_aside_at).total_seconds())),
        "attempts": record.attempts,
        "eventId": record.event_id,
        **operations.owners(aggregate, names),
        "aggregateType": aggregate.type if aggregate else None,
        "action": record.action,
        "sequence": record.sequence,
    }
