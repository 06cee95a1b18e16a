"""A service that answers as a test wants it to: the real page, over a socket, and JSON from a dictionary.

What the real service answers is shown by ``test_real_service.py``; here are the states that are hard to bring about.
"""

import asyncio
import copy
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp import web

from cosmos_outbox.functions import operators
from cosmos_outbox.http.message import Request

KEY = "the-admin-key"
PREFIX = "/some/prefix"
NOW = datetime.now(UTC)

Json = dict[str, Any]


def lease(token: str = "0", **given: Any) -> Json:
    return {
        "lease": token, "owner": f"instance-{token}", "lag": 0, "oldestWaitingSeconds": None,
        "state": "held", "ttlUsed": 0.0, "position": 100, "newest": 100,
    } | given  # fmt: skip


def parked(number: int, **given: Any) -> Json:
    return {
        "kind": "event", "id": f"{number:032x}", "aggregateType": "contact", "aggregateId": f"contact-{number}",
        "reason": "the message is larger than the topic takes", "since": (NOW - timedelta(minutes=5)).isoformat(),
        "attempts": 1, "state": "inTheWay", "subscriber": None, "eventId": f"event-{number}",
        "action": "ContactNameUpdatedEvent", "sequence": number,
    } | given  # fmt: skip


def aside(number: int, **given: Any) -> Json:
    return parked(number) | {
        "kind": "message", "id": f"{1_000_000 + number:032x}", "reason": "ValidationError in model_validate",
        "attempts": 3, "state": "waiting", "subscriber": "board",
    } | given  # fmt: skip


def event(sequence: int, **given: Any) -> Json:
    return {
        "eventId": f"event-{sequence}", "sequence": sequence, "action": "ContactNameUpdatedEvent",
        "createdAt": NOW.isoformat(), "correlationId": "order-4711", "state": "sent", "stuckId": None,
    } | given  # fmt: skip


def quiet() -> Json:
    """What a service answers in which nothing is wrong."""
    return {
        "instance": {
            "id": "a1b2c3d4", "startedAt": NOW.isoformat(), "forwarded": 1234,
            "aggregates": ["contact"],
            "settings": {"EVENT_TTL_SECONDS": 864000, "EVENT_SCHEMAS": None, "SERVICEBUS_TOPIC": "contact-events"},
        },
        "relay": {
            "late": False, "eventsAtRisk": False, "parkedEvents": 0, "parkedAggregates": {}, "missingLeases": [],
            "failures": [], "leases": [lease()],
        },
        "dependencies": {
            "items": [
                {"name": "Cosmos DB", "ok": True, "milliseconds": 4, "detail": None},
                {"name": "Service Bus", "ok": True, "milliseconds": 30, "detail": None},
            ]
        },
        "subscribers": {
            "items": [
                {"name": "board", "setAside": {"waiting": 0, "refused": 0}, "lastWalk": None, "walk": None}
            ]
        },
        "stuck": [],
        "events": {"aggregateId": "c", "aggregateType": "contact", "items": [], "before": None},
    }  # fmt: skip


@dataclass
class Refusal:
    """The answer to one call in the place of its own; ``times`` None: to all."""

    status: int
    detail: str = "refused by the test"
    retry_after: int | None = None
    times: int | None = None


@dataclass
class FakeService:
    """``answers`` is what the calls give; the lists are paged as the service pages them."""

    answers: Json = field(default_factory=quiet)
    asks_for_key: bool = False
    refusals: dict[str, Refusal] = field(default_factory=dict)
    """By the path of the call."""
    slow: asyncio.Event | None = None
    """What every call waits for before it is answered."""
    calls: list[str] = field(default_factory=list)
    """``METHOD path`` of each, without the page itself."""
    bodies: list[Json | None] = field(default_factory=list)
    """Of the calls that change something."""
    under_way: int = 0
    most_at_once: int = 0
    """Of the calls that change something."""
    remaining: bool = False
    """Whether a retry says that more remains."""
    url: str = ""

    def reset(self) -> None:
        """As at the beginning."""
        url, self.url = self.url, ""
        for name, value in vars(FakeService()).items():
            setattr(self, name, copy.deepcopy(value))
        self.url = url

    def looks(self, path: str) -> int:
        """How often this was read."""
        return sum(each == f"GET {path}" for each in self.calls)

    def changes(self) -> list[str]:
        """The calls that change something, in their order."""
        return [each.removeprefix("POST ") for each in self.calls if each.startswith("POST ")]

    async def answer(self, request: web.Request) -> web.Response:
        path = request.path.removeprefix(f"{PREFIX}/")
        if path.rstrip("/") == "operations":
            return _page(request)
        self.calls.append(f"{request.method} {path}")
        if self.asks_for_key and request.headers.get("x-functions-key") != KEY:
            return web.Response(status=401)
        if self.slow:
            await self.slow.wait()
        if refusal := self._refusal(path):
            return refusal
        return await self._change(request, path) if request.method == "POST" else self._look(request, path)

    def _refusal(self, path: str) -> web.Response | None:
        found = self.refusals.get(path)
        if found is None:
            return None
        if found.times is not None:
            found.times -= 1
            if found.times <= 0:
                del self.refusals[path]
        headers = {} if found.retry_after is None else {"Retry-After": str(found.retry_after)}
        return web.json_response({"detail": found.detail}, status=found.status, headers=headers)

    def _look(self, request: web.Request, path: str) -> web.Response:
        name = "events" if path.startswith("events/") else path
        if name not in self.answers:
            return web.json_response({"detail": "There is nothing at this path."}, status=404)
        found = self.answers[name]
        if not isinstance(found, list):
            return web.json_response(found)
        start, size = int(request.query.get("continuationToken", 0)), int(request.query["pageSize"])
        token = str(start + size) if start + size < len(found) else None
        return web.json_response({"items": found[start : start + size], "continuationToken": token})

    async def _change(self, request: web.Request, path: str) -> web.Response:
        self.bodies.append(json.loads(await request.read() or b"null"))
        self.under_way += 1
        self.most_at_once = max(self.most_at_once, self.under_way)
        await asyncio.sleep(0.01)
        self.under_way -= 1
        _, stuck_id, verb = path.split("/")
        if not (verb == "retry" and self.remaining):
            [item] = [each for each in self.answers["stuck"] if each["id"] == stuck_id]
            whole = verb == "retry" and item["kind"] == "event"
            self.answers["stuck"] = [
                each for each in self.answers["stuck"]
                if each["id"] != stuck_id and not (whole and each["aggregateId"] == item["aggregateId"])
            ]  # fmt: skip
        if verb == "retry":
            return web.json_response({"retried": 2, "remaining": self.remaining})
        return web.Response(status=204)


def _page(request: web.Request) -> web.Response:
    answer = operators.show_page(Request("GET", request.path))
    return web.Response(
        body=answer.body, content_type="text/html", charset="utf-8", headers=dict(answer.headers)
    )


@asynccontextmanager
async def serving(service: FakeService) -> AsyncIterator[FakeService]:
    """The service on a free port."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", service.answer)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        service.url = f"http://127.0.0.1:{runner.addresses[0][1]}{PREFIX}"
        yield service
    finally:
        await runner.cleanup()
