"""HTTP for operators: the effects that nobody is done with. Only one effect's answer holds personal data."""

from collections.abc import Sequence
from typing import Annotated

import azure.functions as func
from pydantic import Field

from cosmos_outbox.functions.edge.http_functions import HttpFunctions
from cosmos_outbox.functions.operator import operations
from cosmos_outbox.http import methods, request, responses
from cosmos_outbox.http.answering import Answering
from cosmos_outbox.http.message import Answer, Request
from cosmos_outbox.http.responses import json_response
from cosmos_outbox.http.validation import validated
from cosmos_outbox.inbox.effect_operator import EffectOperator, EffectPage, OpenEffect
from cosmos_outbox.inbox.errors import NotSetAside
from cosmos_outbox.operations.views import effects as view
from cosmos_outbox.operations.views.names import PathNames
from cosmos_outbox.outbox.errors import NotParked
from cosmos_outbox.outbox.event import WireModel
from cosmos_outbox.wiring.located import AnyService


class Reset(WireModel):
    """What is reset: all aggregates, or one."""

    aggregate_id: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    to: Annotated[int, Field(ge=0)] | None = None


answering = HttpFunctions(Answering())


def effect_functions(
    service: AnyService, of: str, names: Sequence[PathNames], *, path: str = ""
) -> func.Blueprint:
    """The functions for the subscriber ``of``, all with the admin key; the service is wired at the first request.

    ``path`` comes before the routes of a second subscriber of one app, and at the end of its functions' names.
    """
    before, after = f"{path}/" if path else "", f"_{path.replace('-', '_')}" if path else ""
    app = func.Blueprint()  # type: ignore[no-untyped-call]  # the library does not annotate its constructor

    def operator() -> EffectOperator:
        found = service().subscriptions[of].effects
        assert found is not None, "only a subscriber with effects has these calls"
        return found

    @app.function_name(f"list_effects{after}")
    @app.route(route=f"{before}effects", methods=methods.READING, auth_level=func.AuthLevel.ADMIN)
    @answering
    async def list_effects(req: Request) -> Answer:
        """GET /effects?pageSize=&continuationToken=: those of so many aggregates."""
        size, token = request.page_request(req)
        return listed(await operator().page(size, token), names)

    @app.function_name(f"get_effect{after}")
    @app.route(route=f"{before}effects/{{id}}", methods=methods.READING, auth_level=func.AuthLevel.ADMIN)
    @answering
    async def get_effect(req: Request) -> Answer:
        """GET /effects/{id}: one effect, with its event."""
        return shown(await operator().show(effect_id(req)), names)

    @app.function_name(f"apply_effect{after}")
    @app.route(route=f"{before}effects/{{id}}/apply", methods=["POST"], auth_level=func.AuthLevel.ADMIN)
    @answering
    async def apply_effect(req: Request) -> Answer:
        """POST /effects/{id}/apply: run one effect now; one that may have been handled with {"reason": ...} alone."""
        wanted, again = effect_id(req), operations.reason_if_given(req)
        await operator().apply(wanted, again)
        return responses.no_content()

    @app.function_name(f"discard_effect{after}")
    @app.route(route=f"{before}effects/{{id}}/discard", methods=["POST"], auth_level=func.AuthLevel.ADMIN)
    @answering
    async def discard_effect(req: Request) -> Answer:
        """POST /effects/{id}/discard {"reason": ...}: give one effect up for good."""
        wanted, reason = effect_id(req), operations.discard_reason(req)
        await operator().discard(wanted, reason)
        return responses.no_content()

    @app.function_name(f"reset_effects{after}")
    @app.route(route=f"{before}effects/reset", methods=["POST"], auth_level=func.AuthLevel.ADMIN)
    @answering
    async def reset_effects(req: Request) -> Answer:
        """POST /effects/reset {"aggregateId": ..., "to": ...}: go on behind the source's last place, or this one."""
        given = validated(Reset, request.json_object(req, "application/json"))
        return json_response(200, {"reset": await operator().reset(given.aggregate_id, given.to)})

    return app


def effect_id(req: Request) -> str:
    """The id in the path; it looks like that of a parked event. Raises NotSetAside when no effect can have it."""
    try:
        return operations.parking_id(req)
    except NotParked:
        raise NotSetAside("no open effect has this id: take an id from the list of effects") from None


def listed(page: EffectPage, names: Sequence[PathNames]) -> Answer:
    """200 with a page of effects, without their events, and the token of the next page."""
    return json_response(200, view.listed(page, names))


def shown(effect: OpenEffect, names: Sequence[PathNames]) -> Answer:
    """200 with an effect and its event; null where the source does not have the event any more."""
    return json_response(200, view.shown(effect, names))
