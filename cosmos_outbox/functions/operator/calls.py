"""The HTTP functions of an operator are the same for every service: a page, health, the relay's lag, the parked events.

The names of these functions sort before ``unrouted``. All of them need the admin key, but for health and for the page,
which holds no data.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import azure.functions as func

from cosmos_outbox.functions.edge.http_functions import HttpFunctions
from cosmos_outbox.functions.operator import operations, operations_page
from cosmos_outbox.http import methods, request, responses
from cosmos_outbox.http.answering import Answering
from cosmos_outbox.http.message import Answer, Request
from cosmos_outbox.operations.views.names import PathNames
from cosmos_outbox.wiring.per_process import HasOutbox

answering = HttpFunctions(Answering())
answering_anybody = HttpFunctions(Answering(told_every_seconds=60))
"""Of the functions that need no key."""


def operator_functions(
    service: Callable[[], HasOutbox],
    names: Sequence[PathNames],
    *,
    lists: Sequence[str] = (),
) -> func.Blueprint:
    """The operator's functions; ``service`` is called at the first request. ``names`` has one entry a type.

    ``lists`` are the paths of the lists of what the service's subscribers have not done, such as ``set-aside``: the
    operations page shows each.
    """
    app = func.Blueprint()  # type: ignore[no-untyped-call]  # the library does not annotate its constructor

    _add_views(app, service, names, lists)

    async def check() -> None:
        await service().outbox.check()

    _add_health(app, check)
    _add_parked(app, service, names)
    return app


def health_functions(check: Callable[[], Awaitable[None]]) -> func.Blueprint:
    """Whether the store answers, of a service that has no relay to tell of."""
    app = func.Blueprint()  # type: ignore[no-untyped-call]  # the library does not annotate its constructor
    _add_health(app, check)
    return app


def _add_health(app: func.Blueprint, check: Callable[[], Awaitable[None]]) -> None:
    @app.route(route="health", methods=methods.READING, auth_level=func.AuthLevel.ANONYMOUS)
    @answering_anybody
    async def health(req: Request) -> Answer:
        """GET /health: 200 when the store answers, 503 when it does not."""
        await check()
        return responses.healthy()


def _add_views(
    app: func.Blueprint,
    service: Callable[[], HasOutbox],
    names: Sequence[PathNames],
    lists: Sequence[str],
) -> None:
    @app.route(route="operations", methods=methods.READING, auth_level=func.AuthLevel.ANONYMOUS)
    @answering_anybody.honouring("If-None-Match")
    async def get_operations_page(req: Request) -> Answer:
        """GET /operations: the page, which asks for the admin key and then calls the others."""
        return operations_page.shown(req)

    @app.route(route="dependencies", methods=methods.READING, auth_level=func.AuthLevel.ADMIN)
    @answering
    async def get_dependencies(req: Request) -> Answer:
        """GET /dependencies: whether the store and the broker can be used; 200 also when one cannot."""
        looks = [each.health() for each in service().outbox.dependencies]
        return operations.dependencies(await asyncio.gather(*looks))

    @app.route(route="instance", methods=methods.READING, auth_level=func.AuthLevel.ADMIN)
    @answering
    async def get_instance(req: Request) -> Answer:
        """GET /instance: what the process that answers has forwarded, its settings, and the service's names."""
        return operations.instance(service().outbox.instance, names, lists)

    @app.route(route="events/{path}/{id}", methods=methods.READING, auth_level=func.AuthLevel.ADMIN)
    @answering
    async def list_events(req: Request) -> Answer:
        """GET /events/{path}/{id}?pageSize=&before=: the stored and the parked events of one aggregate."""
        aggregate, (size, before) = operations.named_aggregate(req, names), operations.events_request(req)
        return operations.events_listed(
            await service().outbox.event_list.page(aggregate, size, before), names
        )

    @app.route(route="relay", methods=methods.READING, auth_level=func.AuthLevel.ADMIN)
    @answering
    async def get_relay(req: Request) -> Answer:
        """GET /relay: how far behind the relay is, and how many aggregates are parked."""
        return operations.relay_status(await service().outbox.observer.status(), names)


def _add_parked(app: func.Blueprint, service: Callable[[], HasOutbox], names: Sequence[PathNames]) -> None:
    @app.route(route="parked", methods=methods.READING, auth_level=func.AuthLevel.ADMIN)
    @answering
    async def list_parked(req: Request) -> Answer:
        """GET /parked?pageSize=&continuationToken=&state=: the events that cannot be sent, and those behind them."""
        (size, token), discarded = request.page_request(req, "state"), operations.wants_discarded(req)
        parking = service().outbox.parking
        page = await parking.page(size, token, discarded=discarded)
        return operations.parked_listed(page, names, parking.max_age_seconds)

    @app.route(route="parked/{id}", methods=methods.READING, auth_level=func.AuthLevel.ADMIN)
    @answering
    async def get_parked(req: Request) -> Answer:
        """GET /parked/{id}: one parked event, with its document."""
        parking_id = operations.parking_id(req)
        return operations.parked_shown(await service().outbox.parking.show(parking_id), names)

    @app.route(route="parked/{id}/discard", methods=["POST"], auth_level=func.AuthLevel.ADMIN)
    @answering
    async def discard_parked(req: Request) -> Answer:
        """POST /parked/{id}/discard {"reason": ...}: give the event that is in the way up for good."""
        parking_id, reason = operations.parking_id(req), operations.discard_reason(req)
        await service().outbox.parking.discard(parking_id, reason)
        return responses.no_content()

    @app.route(route="parked/{path}/{id}/replay", methods=["POST"], auth_level=func.AuthLevel.ADMIN)
    @answering
    async def replay_parked(req: Request) -> Answer:
        """POST /parked/{path}/{id}/replay: send an aggregate's parked events in order."""
        aggregate = operations.parked_aggregate(req, names)
        return operations.replayed(await service().outbox.parking.replay(aggregate))
