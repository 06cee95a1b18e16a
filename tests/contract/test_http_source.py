"""What an answer of the publisher's HTTP API proves, over real sockets."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from aiohttp import web

from cosmos_outbox.inbox.entry import Entry, Found, Stamp
from cosmos_outbox.inbox.errors import SourceBehind, StoreUnavailable
from cosmos_outbox.inbox.read_model import HealReason, Put, StateInbox
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import SYSTEM, using
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.settings.names import Named
from cosmos_outbox.sources.http import GONE_AFTER_SECONDS, LONGEST_ANSWER_BYTES, HttpApi, HttpSource
from tests.support.inbox import KEY, NOON, FakeEntries, event, project

State = tuple[int, ...]
ADDRESS = Named("THINGS_API")
NOT_FOUND = object()
"""The body of an answer: the problem document of this library's resources."""


@dataclass
class Publisher:
    """Answers as the test asks, and notes what it was asked."""

    answer: tuple[int, Any] = (404, NOT_FOUND)
    newest: tuple[int, Any] | None = None
    """The answer to who asks for the newest state; None: the same."""
    headers: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    address: str = ""

    async def get(self, request: web.Request) -> web.Response:
        self.asked.append((request.raw_path, request.headers))
        wants_newest = "no-cache" in request.headers.get("Cache-Control", "")
        status, body = self.newest if wants_newest and self.newest else self.answer
        if body is NOT_FOUND:
            problem = {"type": "/api/problems/not-found", "status": 404}
            return web.json_response(problem, status=status, content_type="application/problem+json")
        if isinstance(body, str):
            headers = {"Content-Type": "text/plain", **self.headers}
            return web.Response(status=status, body=body.encode(), headers=headers)
        return web.json_response(body, status=status, headers=self.headers)


@pytest.fixture
async def publisher() -> AsyncIterator[Publisher]:
    made, app = Publisher(), web.Application()
    app.router.add_get("/api/things/{id}", made.get)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.address = f"http://127.0.0.1:{runner.addresses[0][1]}/api/things/"
    yield made
    await runner.cleanup()


def at_time(seconds: float) -> AbstractContextManager[None]:
    return using(replace(SYSTEM, monotonic=lambda: seconds))


@pytest.fixture
async def source(publisher: Publisher) -> AsyncIterator[HttpSource[State]]:
    async for each in made(publisher, answers_newest=False):
        yield each


@pytest.fixture
async def consistent(publisher: Publisher) -> AsyncIterator[HttpSource[State]]:
    async for each in made(publisher, answers_newest=True):
        yield each


async def made(publisher: Publisher, **declared: Any) -> AsyncIterator[HttpSource[State]]:
    api = HttpApi(ADDRESS, **declared)
    found = api.made({ADDRESS.setting: publisher.address, "THINGS_KEY": "secret"}, state_of)
    yield found
    await found.close()


def state_of(body: Mapping[str, Any]) -> State:
    return tuple(body["adds"])


def at(sequence: int) -> tuple[int, dict[str, Any]]:
    return 200, {"id": "7", "adds": [*range(1, sequence + 1)], "sequence": sequence}


async def test_an_answer_is_the_aggregate_at_its_sequence(
    publisher: Publisher, source: HttpSource[State]
) -> None:
    publisher.answer = at(2)
    assert await source.read(KEY) == await source.newest(KEY) == Found(2, (1, 2))
    assert publisher.asked[0][0] == "/api/things/7"
    publisher.answer = (200, {"adds": [], "sequence": 3, "deleted": True})
    assert await source.read(KEY) == Found(3, None)


async def test_only_a_publisher_that_says_so_is_asked_for_its_newest_state(
    publisher: Publisher, source: HttpSource[State], consistent: HttpSource[State]
) -> None:
    publisher.answer, publisher.newest = at(1), at(2)
    assert await source.newest(KEY) == Found(1, (1,))
    assert await consistent.read(KEY) == Found(1, (1,))
    assert await consistent.newest(KEY) == Found(2, (1, 2))


async def test_a_404_is_proof_only_in_a_consistent_read_or_when_it_stays(
    publisher: Publisher, source: HttpSource[State], consistent: HttpSource[State]
) -> None:
    assert await consistent.newest(KEY) is None
    for now in (0.0, 60.0, GONE_AFTER_SECONDS - 1):
        with at_time(now), pytest.raises(SourceBehind, match="may be an old answer"):
            await source.newest(KEY)
    publisher.answer = at(1)
    assert await source.newest(KEY) == Found(1, (1,))
    publisher.answer = (404, NOT_FOUND)
    for now in (GONE_AFTER_SECONDS, 2 * GONE_AFTER_SECONDS - 1):
        with at_time(now), pytest.raises(SourceBehind):
            await source.newest(KEY)
    with at_time(2 * GONE_AFTER_SECONDS):
        assert await source.newest(KEY) is None
    assert await source.read(KEY) is None


async def test_a_410_is_proof(publisher: Publisher, source: HttpSource[State]) -> None:
    publisher.answer = (410, None)
    assert await source.newest(KEY) is None


@pytest.mark.parametrize(
    ("content_type", "text"),
    [
        ("text/html", "<h1>404 Not Found</h1>"),
        ("application/json", '{"type": "/api/problems/not-found"}'),
        ("application/problem+json", '{"type": "/api/problems/unknown-path"}'),
        ("application/problem+json", '["not-found"]'),
    ],
)
async def test_a_404_of_somebody_else_is_an_outage(
    publisher: Publisher,
    source: HttpSource[State],
    consistent: HttpSource[State],
    content_type: str,
    text: str,
) -> None:
    publisher.answer, publisher.headers = (404, text), {"Content-Type": content_type}
    for each in (source, consistent):
        with pytest.raises(StoreUnavailable, match="something else than the publisher's API"):
            await each.newest(KEY)


async def test_an_id_that_a_path_cannot_hold_is_not_asked_for(
    publisher: Publisher, source: HttpSource[State]
) -> None:
    for each in (".", ".."):
        with pytest.raises(SourceBehind, match="no URL can name"):
            await source.read(AggregateKey("thing", each))
    assert publisher.asked == []


@pytest.mark.parametrize(
    ("status", "retry_after", "pause"),
    [
        *((each, "7", 7.0) for each in (401, 403, 408, 429, 500, 503)),
        *((429, each, 1.0) for each in ("", "\u00b2", "Wed, 21 Oct 2026 07:28:00 GMT")),
    ],
)
async def test_what_hits_every_aggregate_is_waited_for_as_long_as_it_says(
    publisher: Publisher, source: HttpSource[State], status: int, retry_after: str, pause: float
) -> None:
    publisher.answer, publisher.headers = (status, "{}"), {"Retry-After": retry_after}
    with pytest.raises(StoreUnavailable, match=f"answers {status}") as away:
        await source.read(KEY)
    assert away.value.retry_after_seconds == pause


async def test_the_key_goes_to_no_other_address_and_a_login_page_is_no_answer(publisher: Publisher) -> None:
    """An API behind a sign-in sends every caller there: that hits every aggregate, and is waited for."""
    publisher.headers = {"Location": f"{publisher.address}login"}
    async for found in made(publisher, key=Named("THINGS_KEY")):
        for status in (301, 302, 303, 307, 308):
            publisher.answer = (status, "")
            for read in (found.read, found.newest):
                with pytest.raises(StoreUnavailable, match=f"answers {status}"):
                    await read(KEY)
    assert {path for path, _ in publisher.asked} == {"/api/things/7"}


async def test_a_publisher_that_is_not_there_is_waited_for() -> None:
    nobody = HttpApi(ADDRESS).made({ADDRESS.setting: "http://127.0.0.1:9/things"}, state_of)
    with pytest.raises(StoreUnavailable, match="does not answer"):
        await nobody.newest(KEY)
    await nobody.close()


@pytest.mark.parametrize(
    "answer",
    [
        (400, {}),
        (200, "no JSON"),
        (200, []),
        (200, {"adds": []}),
        (200, {"adds": [], "sequence": "2"}),
        (200, {"adds": [], "sequence": True}),
        (200, {"adds": [], "sequence": 10**30}),
        (200, '{"adds": ' + "[" * 100_000 + "]" * 100_000 + "}"),
    ],
)
async def test_an_answer_that_shows_nothing_hits_its_aggregate_alone(
    publisher: Publisher, source: HttpSource[State], answer: tuple[int, Any]
) -> None:
    publisher.answer = answer
    with pytest.raises(SourceBehind):
        await source.newest(KEY)


async def test_what_the_subscriber_cannot_read_is_its_own_error(
    publisher: Publisher, source: HttpSource[State]
) -> None:
    publisher.answer = (200, {"sequence": 1})
    with pytest.raises(KeyError):
        await source.newest(KEY)


async def test_a_key_is_sent_and_never_shown(publisher: Publisher) -> None:
    async for found in made(publisher, key=Named("THINGS_KEY")):
        publisher.answer = at(1)
        await found.read(KEY)
        assert publisher.asked[0][1]["x-functions-key"] == "secret"
        assert "secret" not in repr(found)
    with pytest.raises(Misconfigured, match="THINGS_API is not set"):
        HttpApi(ADDRESS).made({}, state_of)


async def test_healing_needs_a_source_that_has_reached_the_event(
    publisher: Publisher, consistent: HttpSource[State]
) -> None:
    entries: FakeEntries[State] = FakeEntries()
    inbox = StateInbox(entries, consistent, project, lambda: NOON)
    publisher.answer = publisher.newest = at(2)
    with pytest.raises(SourceBehind):
        await inbox.handle(event(3))
    assert entries.of(KEY) is None
    publisher.newest = at(3)
    assert await inbox.handle(event(3)) == Put(Entry(3, None, (1, 2, 3)), HealReason.NEW)
    publisher.answer, publisher.newest = at(3), at(6)  # a replica that lags, and the newest
    await inbox.handle(event(5))
    assert entries.of(KEY) == Entry(6, None, (1, 2, 3, 4, 5, 6), healed=1)


async def test_an_old_404_makes_no_living_entry_deleted(
    publisher: Publisher, source: HttpSource[State]
) -> None:
    entries: FakeEntries[State] = FakeEntries()
    inbox = StateInbox(entries, source, project, lambda: NOON)
    await entries.put(KEY, Entry(1, "x", (1,)), Stamp(NOON, None), over=None)
    with pytest.raises(SourceBehind):
        await inbox.handle(event(3))
    assert entries.of(KEY) == Entry(1, "x", (1,))


async def test_an_answer_that_is_too_long_is_not_read_to_its_end(
    publisher: Publisher, source: HttpSource[State]
) -> None:
    publisher.answer = (200, '{"sequence": 1, "more": "' + "x" * LONGEST_ANSWER_BYTES + '"}')
    with pytest.raises(SourceBehind, match="more than 4 MB"):
        await source.newest(KEY)
    publisher.answer = at(2)
    assert await source.newest(KEY) == Found(2, (1, 2))
