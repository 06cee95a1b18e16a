"""Declares a service's read models anew for a run: with another source, and with handlers that fail now and then.

The other source is the service's own HTTP API, as another team reads it. For a while a proxy answers in the API's
place that it knows no such page, and a walk over the read models may run then: no entry is lost for it.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pydantic_core import from_json

from cosmos_outbox.composition.declarations import (
    EffectDeclaration,
    ReactionDeclaration,
    ReadModelDeclaration,
    Subscriber,
)
from cosmos_outbox.http.message import Answer, Handler, Request
from cosmos_outbox.inbox.errors import StoreUnavailable
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import randomness
from cosmos_outbox.service import Service
from cosmos_outbox.settings.names import Named
from cosmos_outbox.sources.http import CALL_SECONDS, HttpApi
from cosmos_outbox.testing.publisher import api_in_memory
from outbox_simulation.engine.deployment import Deployment
from outbox_simulation.engine.operator import PASSING
from outbox_simulation.engine.walking import walk_all

_WALKED = 0.5
"""The share of times with a proxy in which an operator runs a walk."""
_LONGEST_SECONDS = 30.0
_RAISES = 0.03
"""How often a handler raises what is no ``Exception``."""


class HttpSource:
    """The service's own API as the source of its read models, and the proxy before it."""

    def __init__(self, deployment: Callable[[], Deployment], get: Handler, chance: random.Random) -> None:
        """``get``: answers a GET of one aggregate, in an instance of the API."""
        self._deployment, self._get, self._chance = deployment, get, chance
        self.hidden_until = 0.0
        """The end of the time in which the proxy answers."""

    def of(self, service: Service) -> Service:
        """Returns the service with this source."""
        api = api_in_memory(HttpApi(Named("API", "https://api.invalid"), answers_newest=True), self._respond)
        return _with_read_models(service, lambda each: replace(each, source=api))

    async def hide(self, chance: random.Random) -> None:
        """Lets the proxy answer for a while; an operator may run a walk then."""
        ground, desk = self._deployment().ground, self._deployment().desks[0]
        self.hidden_until = ground.loop.time() + chance.uniform(0.0, _LONGEST_SECONDS)
        ground.trace.note("proxy", detail=f"until {self.hidden_until:.1f} s")
        if chance.random() < _WALKED:
            with suppress(*PASSING):
                await ground.loop.begin(desk.instance, walk_all(desk.wired.subscriptions))

    async def _respond(self, key: AggregateKey, headers: Mapping[str, str]) -> tuple[int, str, Any]:
        loop, api = self._deployment().ground.loop, self._deployment().any_api(self._chance)
        if loop.time() < self.hidden_until:
            return 404, "", None
        if api is None:
            raise StoreUnavailable("no instance takes requests")
        asked = Request("GET", f"https://api.invalid/{key.id}", headers, {"id": key.id})
        work = loop.begin(api.instance, self._answer(asked))
        done, _ = await asyncio.wait({work}, timeout=CALL_SECONDS)
        if not done:
            raise StoreUnavailable("no answer in time")
        answer = work.result()
        is_json = answer.status == 200 or answer.media_type == "application/problem+json"
        body = from_json(answer.body) if is_json else None
        return answer.status, answer.headers.get("Retry-After", ""), body

    async def _answer(self, asked: Request) -> Answer:
        return await self._get(asked)


def raising(service: Service) -> Service:
    """Returns the service with subscribers whose functions now and then raise what is no ``Exception``."""
    return redeclared(service, _raising)


def _raising(of: Subscriber) -> Subscriber:
    match of:
        case ReadModelDeclaration():
            first = of.first and _raises(of.first)
            return replace(of, project=_raises(of.project), first=first, state_of=_raises(of.state_of))
        case ReactionDeclaration():
            return replace(of, targets=_raises(of.targets), react=_raises(of.react))
        case EffectDeclaration():
            return replace(of, run=_raises(of.run))


def _raises(handler: Callable[..., Any]) -> Callable[..., Any]:
    def call(*given: Any) -> Any:
        if randomness().random() < _RAISES:
            raise_no_exception()
        return handler(*given)

    return call


def raise_no_exception() -> None:
    """Raises one of those that would end a task, or the process, if they were taken for its own end."""
    match randomness().randrange(3):
        case 0:
            raise SystemExit
        case 1:
            raise asyncio.CancelledError
        case _:
            raise BaseExceptionGroup("two at once", [SystemExit(), KeyError()])


def _with_read_models(
    service: Service, anew: Callable[[ReadModelDeclaration[Any]], ReadModelDeclaration[Any]]
) -> Service:
    return redeclared(service, lambda each: anew(each) if isinstance(each, ReadModelDeclaration) else each)


def redeclared(service: Service, anew: Callable[[Subscriber], Subscriber]) -> Service:
    """Returns a copy of the service, in any version, with other subscribers."""
    copy = replace(service)
    copy.subscribers.extend(map(anew, service.subscribers))
    # The user's code must get the process's service from its own object.
    object.__setattr__(copy, "_per_process", service._per_process)  # noqa: SLF001
    return copy
