"""HTTP for operators: the effects that nobody is done with. Only one effect's answer holds personal data."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

import azure.functions as func

from inbox.effect_operator import EffectOperator, EffectPage, OpenEffect
from inbox.errors import NotSetAside
from infra.http import methods, operations, request, responses
from infra.http.answering import Answering
from infra.http.responses import json_response
from outbox.errors import NotParked

answering = Answering()


class WithEffects(Protocol):
    """A service that has a subscriber with effects."""

    @property
    def effects(self) -> EffectOperator: ...


def effect_functions(service: Callable[[], WithEffects], names: Sequence[operations.Names]) -> func.Blueprint:
    """The functions, all with the admin key; ``service`` is called at the first request."""
    app = func.Blueprint()  # type: ignore[no-untyped-call]  # the library does not annotate its constructor

    @app.route(route="effects", methods=methods.READING, auth_level=func.AuthLevel.ADMIN)
    @answering
    async def list_effects(req: func.HttpRequest) -> func.HttpResponse:
        """GET /effects?pageSize=&continuationToken=: those that wait or may have been handled, the oldest first."""
        size, token = request.page_request(req)
        return listed(await service().effects.page(size, token), names)

    @app.route(route="effects/{id}", methods=methods.READING, auth_level=func.AuthLevel.ADMIN)
    @answering
    async def get_effect(req: func.HttpRequest) -> func.HttpResponse:
        """GET /effects/{id}: one effect, with its event."""
        return shown(await service().effects.show(effect_id(req)), names)

    @app.route(route="effects/{id}/apply", methods=["POST"], auth_level=func.AuthLevel.ADMIN)
    @answering
    async def apply_effect(req: func.HttpRequest) -> func.HttpResponse:
        """POST /effects/{id}/apply: run one effect now; one that may have been handled with {"reason": ...} alone."""
        wanted, again = effect_id(req), operations.reason_if_given(req)
        await service().effects.apply(wanted, again)
        return responses.no_content()

    @app.route(route="effects/{id}/discard", methods=["POST"], auth_level=func.AuthLevel.ADMIN)
    @answering
    async def discard_effect(req: func.HttpRequest) -> func.HttpResponse:
        """POST /effects/{id}/discard {"reason": ...}: give one effect up for good."""
        wanted, reason = effect_id(req), operations.discard_reason(req)
        await service().effects.discard(wanted, reason)
        return responses.no_content()

    @app.route(route="effects/{id}/pass-missing", methods=["POST"], auth_level=func.AuthLevel.ADMIN)
    @answering
    async def pass_missing_effects(req: func.HttpRequest) -> func.HttpResponse:
        """POST /effects/{id}/pass-missing {"reason": ...}: give up the events before it that have not come."""
        wanted, reason = effect_id(req), operations.discard_reason(req)
        await service().effects.pass_missing(wanted, reason)
        return responses.no_content()

    return app


def effect_id(req: func.HttpRequest) -> str:
    """The id in the path; it looks like that of a parked event. Raises NotSetAside when no effect can have it."""
    try:
        return operations.parking_id(req)
    except NotParked:
        raise NotSetAside("no open effect has this id: take an id from the list of effects") from None


def listed(page: EffectPage, names: Sequence[operations.Names]) -> func.HttpResponse:
    """200 with a page of effects, without their events, and the token of the next page."""
    items = [_summary(effect, names) for effect in page.items]
    return json_response(200, {"items": items, "continuationToken": page.continuation_token})


def shown(effect: OpenEffect, names: Sequence[operations.Names]) -> func.HttpResponse:
    """200 with an effect and its event; null where only a message has the event."""
    event = effect.event and dict(effect.event.data)
    return json_response(200, {**_summary(effect, names), "event": event})


def _summary(effect: OpenEffect, names: Sequence[operations.Names]) -> Mapping[str, Any]:
    mark, aggregate = effect.mark, effect.aggregate
    since = mark.failing_since or mark.at
    return {
        "id": effect.id,
        "state": mark.state.value,
        "reason": mark.reason,
        "since": since.isoformat(),
        "ageSeconds": max(0, int((datetime.now(UTC) - since).total_seconds())),
        "attempts": mark.failures,
        "eventId": mark.event_id,
        **operations.owners(aggregate, names),
        "aggregateType": aggregate.type,
        "action": effect.action,
        "sequence": mark.sequence,
    }
