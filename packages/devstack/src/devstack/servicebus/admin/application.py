"""Every management request is authorised with a SAS token, and every refusal is the service's own error document."""

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from functools import partial
from typing import TypeVar
from urllib.parse import unquote

from aiohttp import web

from devstack.fault_api import fault_routes
from devstack.http_server import EVERY_PATH
from devstack.servicebus.admin import atom_reader, atom_writer
from devstack.servicebus.amqp.cbs import DEVELOPMENT_KEY, TokenRefused, check_token
from devstack.servicebus.amqp.engine import Engine
from devstack.servicebus.amqp.faults import Fault, Faults, Traffic
from devstack.servicebus.amqp.properties import describe
from devstack.servicebus.amqp.transport import Transport
from devstack.servicebus.broker.description import Description, Rule, entity_path
from devstack.servicebus.broker.entity import Entity
from devstack.servicebus.broker.filters import check_rule
from devstack.servicebus.broker.namespace import topic_path
from devstack.servicebus.broker.rules import find_rule, with_rule, without_rule
from devstack.servicebus.codec.errors import ENTITY_ALREADY_EXISTS, NOT_FOUND, AmqpError

MAX_BODY_BYTES = 1_048_576
MAX_PAGE = 100
_ATOM_TYPE = "application/atom+xml;type=entry;charset=utf-8"
_ENTITY_KINDS = {"queues": "queue", "topics": "topic"}

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Refusal(Exception):
    """A request that is answered with an error document."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


def make_application(
    engine: Engine, faults: Faults, traffic: Traffic, transports: dict[Transport, None], *, with_faults: bool
) -> web.Application:
    """The management API and, only when asked for, the faults on demand and the count of what was sent."""
    admin = _Admin(engine)
    application = web.Application(middlewares=[_errors], client_max_size=MAX_BODY_BYTES)
    if with_faults:
        application.router.add_routes(fault_routes(Fault, faults, partial(happens_now, transports)))
        application.router.add_routes([web.get("/_devstack/traffic", partial(_traffic, traffic))])
    application.router.add_route("*", EVERY_PATH, admin.handle)
    return application


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except Refusal as refusal:
        status, detail = refusal.status, refusal.detail
    except AmqpError as error:
        status = {NOT_FOUND: 404, ENTITY_ALREADY_EXISTS: 409}.get(error.condition, 400)
        detail = error.description
    except ValueError as error:
        status, detail = 400, f"SubCode=40000. Bad Request. {error}"
    except web.HTTPException as error:
        status, detail = error.status, error.reason
    return web.Response(
        status=status, body=atom_writer.write_error(status, detail), content_type="application/xml"
    )


async def _traffic(traffic: Traffic, _request: web.Request) -> web.Response:
    return web.json_response(asdict(traffic))


def happens_now(transports: dict[Transport, None], fault: Fault) -> bool:
    """Carry out what waits for nothing; False: the fault is for what comes."""
    if fault.kind not in ("detach", "disconnect"):
        return False
    for transport in list(transports):
        if fault.kind == "disconnect":
            transport.client.abort()
        else:
            transport.client.detach_all(AmqpError(fault.condition, "A fault was asked for."))
    return True


class _Admin:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Route by the path's form: an entity's name may contain slashes, so a table of routes cannot."""
        path = unquote(request.path).strip("/")
        self._authorise(request, path)
        body = await request.read()
        lowered = path.lower()
        if lowered.startswith("$resources/"):
            return self._list_entities(request, lowered.removeprefix("$resources/"))
        if lowered.startswith("$namespaceinfo"):
            raise Refusal(501, "the namespace's own properties are not supported by devstack")
        head, found, rest = path.partition("/" + _segment(path, "subscriptions") + "/")
        if lowered.endswith("/subscriptions"):
            return self._list_subscriptions(request, path[: -len("/subscriptions")])
        if found and rest.lower().endswith("/rules"):
            return self._list_rules(request, f"{head}/subscriptions/{rest[: -len('/rules')]}")
        if found and "/rules/" in rest.lower():
            at = rest.lower().index("/rules/")
            return self._rule(request, f"{head}/subscriptions/{rest[:at]}", rest[at + len("/rules/") :], body)
        return self._entity(request, f"{head}/subscriptions/{rest}" if found else path, body)

    def _authorise(self, request: web.Request, path: str) -> None:
        token = request.headers.get("Authorization") or request.headers.get("ServiceBusAuthorization") or ""
        try:
            grant = check_token(token, DEVELOPMENT_KEY, self._engine.now())
        except TokenRefused as refusal:
            raise Refusal(
                401, f"SubCode=40103: Invalid authorization token signature: {refusal}"
            ) from refusal
        if not grant.covers(path, self._engine.now()):
            raise Refusal(401, "SubCode=40101: the token is not for this path")

    # -- entities

    def _entity(self, request: web.Request, path: str, body: bytes) -> web.Response:
        if request.method == "PUT":
            return self._put_entity(request, path, body)
        entity = self._find(path)
        if request.method == "DELETE":
            self._engine.delete(path)
            return web.Response(status=200)
        if request.method != "GET":
            raise Refusal(405, "the method is not supported here")
        return self._written(request, entity, 200)

    def _put_entity(self, request: web.Request, path: str, body: bytes) -> web.Response:
        asked = atom_reader.read_entity(body)
        is_subscription = "/subscriptions/" in path.lower()
        if (asked.kind == "subscription") is not is_subscription:
            raise Refusal(400, f"SubCode=40000. a {asked.kind} cannot have the path '{path}'")
        kind: str = asked.kind
        for forwarding in ("ForwardTo", "ForwardDeadLetteredMessagesTo"):
            if target := asked.properties.get(forwarding):
                self._find(entity_path(target))
        now = self._engine.now()
        if request.headers.get("If-Match") is not None:
            base = self._find(path).description
            changed = describe(base.path, base.kind, asked.properties, base=base, now_ms=now)
            return self._written(request, self._engine.update(changed), 200)
        description = describe(path, kind, asked.properties, now_ms=now)  # type: ignore[arg-type] # read_entity gives a Kind
        if asked.default_rule is not None:
            check_rule(asked.default_rule)
            description = description.model_copy(update={"rules": (asked.default_rule,)})
        return self._written(request, self._engine.create(description), 201)

    def _written(self, request: web.Request, entity: Entity, status: int) -> web.Response:
        name = atom_writer.description_path(entity.description)
        body = atom_writer.write_entity(entity, _address(request, entity.description), name)
        return web.Response(status=status, body=body, headers={"Content-Type": _ATOM_TYPE})

    def _list_entities(self, request: web.Request, collection: str) -> web.Response:
        kind = _ENTITY_KINDS.get(collection)
        if kind is None:
            raise Refusal(404, f"there is no collection '{collection}'")
        return self._feed(
            request, [e for e in self._engine.namespace.entities() if e.description.kind == kind]
        )

    def _list_subscriptions(self, request: web.Request, topic: str) -> web.Response:
        self._find(topic)
        prefix = f"{topic.lower()}/subscriptions/"
        entities = self._engine.namespace.entities()
        return self._feed(request, [e for e in entities if e.description.path.lower().startswith(prefix)])

    def _feed(self, request: web.Request, entities: list[Entity]) -> web.Response:
        _only_get(request)
        ordered = sorted(entities, key=lambda entity: entity.description.path.lower())
        page, following = _page(request, ordered)
        items = [
            (e, _address(request, e.description), atom_writer.description_path(e.description)) for e in page
        ]
        body = atom_writer.write_entities(items, request.path, following)
        return web.Response(
            body=body, headers={"Content-Type": "application/atom+xml;type=feed;charset=utf-8"}
        )

    # -- rules

    def _rule(self, request: web.Request, path: str, name: str, body: bytes) -> web.Response:
        description = self._find(path).description
        if request.method == "PUT":
            return self._put_rule(request, description, name, body)
        if request.method == "DELETE":
            self._engine.update(without_rule(description, name))
            return web.Response(status=200)
        _only_get(request)
        return _rule_response(request, find_rule(description, name), description, 200)

    def _put_rule(
        self, request: web.Request, description: Description, name: str, body: bytes
    ) -> web.Response:
        updates = request.headers.get("If-Match") is not None
        rule = atom_reader.read_rule(body).model_copy(update={"name": name})
        changed = with_rule(without_rule(description, name) if updates else description, rule)
        self._engine.update(changed)
        return _rule_response(request, rule, description, 200 if updates else 201)

    def _list_rules(self, request: web.Request, path: str) -> web.Response:
        _only_get(request)
        description = self._find(path).description
        page, following = _page(request, list(description.rules))
        items = [(rule, _address(request, description, rule)) for rule in page]
        body = atom_writer.write_rules(items, description.created_ms, following)
        return web.Response(
            body=body, headers={"Content-Type": "application/atom+xml;type=feed;charset=utf-8"}
        )

    def _find(self, path: str) -> Entity:
        entity = self._engine.namespace.find(path)
        if entity is None:
            raise Refusal(404, f"SubCode=40400. Not Found. The entity '{path}' could not be found")
        return entity


def _rule_response(request: web.Request, rule: Rule, description: Description, status: int) -> web.Response:
    body = atom_writer.write_rule(rule, _address(request, description, rule), description.created_ms)
    return web.Response(status=status, body=body, headers={"Content-Type": _ATOM_TYPE})


def _address(request: web.Request, description: Description, rule: Rule | None = None) -> str:
    """The id of an entity or rule. Clients read the names from its ``/Subscriptions/`` and ``/Rules/``, spelled so."""
    path = description.path
    if description.kind == "subscription":
        path = f"{topic_path(path)}/Subscriptions/{atom_writer.description_path(description)}"
    if rule is not None:
        path += f"/Rules/{rule.name}"
    version = request.query.get("api-version")
    return f"{request.url.origin()}/{path}" + (f"?api-version={version}" if version else "")


def _segment(path: str, name: str) -> str:
    """The path's own spelling of a segment; clients write both ``subscriptions`` and ``Subscriptions``."""
    return next((part for part in path.split("/") if part.lower() == name), name)


def _only_get(request: web.Request) -> None:
    if request.method != "GET":
        raise Refusal(405, "the method is not supported here")


def _page(request: web.Request, items: list[T]) -> tuple[list[T], str | None]:
    """The page that ``$skip`` and ``$top`` ask for, and the address of the next one."""
    skip = max(0, int(request.query.get("$skip", "0")))
    top = min(MAX_PAGE, max(1, int(request.query.get("$top", str(MAX_PAGE)))))
    page = items[skip : skip + top]
    if skip + top >= len(items):
        return page, None
    return page, str(request.url.with_query({"$skip": str(skip + top), "$top": str(top)}))
