"""HTTP for operators: the effects that nobody is done with. No answer holds personal data."""

from collections.abc import Sequence

import azure.functions as func

from cosmos_outbox.functions.edge.http_functions import HttpFunctions
from cosmos_outbox.functions.operator import operations
from cosmos_outbox.http import methods, request, responses
from cosmos_outbox.http.answering import Answering
from cosmos_outbox.http.message import Answer, Request
from cosmos_outbox.http.responses import json_response
from cosmos_outbox.inbox.effect_operator import EffectOperator
from cosmos_outbox.inbox.errors import NotSetAside
from cosmos_outbox.operations.views import effects as view
from cosmos_outbox.operations.views.names import PathNames
from cosmos_outbox.outbox.errors import NotParked
from cosmos_outbox.wiring.located import AnyService

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
        return json_response(200, view.listed(await operator().page(size, token), names))

    @app.function_name(f"discard_effect{after}")
    @app.route(route=f"{before}effects/{{id}}/discard", methods=["POST"], auth_level=func.AuthLevel.ADMIN)
    @answering
    async def discard_effect(req: Request) -> Answer:
        """POST /effects/{id}/discard {"reason": ...}: give one effect up for good."""
        wanted, reason = effect_id(req), operations.discard_reason(req)
        await operator().discard(wanted, reason)
        return responses.no_content()

    return app


def effect_id(req: Request) -> str:
    """The id in the path; it looks like that of a parked event. Raises NotSetAside when no effect can have it."""
    try:
        return operations.parking_id(req)
    except NotParked:
        raise NotSetAside("no open effect has this id: take an id from the list of effects") from None
