"""What the transport notes of a batch, from the answers of a service that is asked over a real socket."""

import asyncio

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from azure.core.exceptions import ServiceRequestError
from azure.core.rest import HttpRequest

from cosmos_outbox.cosmos.store.client import Attempts, TrackingTransport, track_attempts
from cosmos_outbox.cosmos.store.errors import Failure, Kind


@pytest.mark.parametrize(
    ("answers", "answer_lost", "throttled"),
    [
        ([200], False, False),
        ([429], False, True),
        ([412], False, False),
        ([503, 429], True, True),  # the SDK repeats a write after 503 in silence
        ([500, 429], True, True),
        ([408, 429], True, True),
        ([449, 429], False, True),
        ([503, 412], True, False),
    ],
)
async def test_an_answer_that_leaves_the_outcome_open_is_a_lost_one(
    answers: list[int], answer_lost: bool, throttled: bool
) -> None:
    left = iter(answers)

    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=next(left))

    app = web.Application()
    app.router.add_post("/docs", answer)
    async with TestServer(app) as server, TrackingTransport() as transport:
        with track_attempts() as attempts:
            for _ in answers:
                batch = HttpRequest(
                    "POST", str(server.make_url("/docs")), headers={"x-ms-cosmos-is-batch-request": "True"}
                )
                await transport.send(batch)

    assert (attempts.answer_lost, attempts.throttled) == (answer_lost, throttled)


@pytest.mark.parametrize(
    ("status", "unknown"), [(403, False), (449, False), (408, True), (410, True), (500, True), (503, True)]
)
def test_the_last_answer_says_whether_it_wrote_anything(status: int, unknown: bool) -> None:
    passing = Failure(Kind.PASSING, "answered", status=status)
    assert Attempts().outcome(passing).answer_lost is unknown
    assert Attempts(answer_lost=True).outcome(passing).answer_lost, "an earlier attempt may have been stored"


async def test_only_batches_are_noted_and_only_where_somebody_waits_for_one() -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=503)

    app = web.Application()
    app.router.add_get("/docs", answer)
    app.router.add_post("/docs", answer)
    async with TestServer(app) as server, TrackingTransport() as transport:
        url = str(server.make_url("/docs"))
        with track_attempts() as attempts:
            await transport.send(HttpRequest("GET", url))
        batch = HttpRequest("POST", url, headers={"x-ms-cosmos-is-batch-request": "True"})
        assert (await transport.send(batch)).status_code == 503
    assert attempts == Attempts()


async def test_of_a_batch_that_was_never_sent_no_answer_is_lost() -> None:
    batch = HttpRequest("POST", "http://127.0.0.1:1/docs", headers={"x-ms-cosmos-is-batch-request": "True"})
    async with TrackingTransport() as transport:
        with track_attempts() as attempts, pytest.raises(ServiceRequestError):
            await transport.send(batch)
    assert attempts == Attempts()


async def test_a_batch_that_is_given_up_under_way_may_have_arrived() -> None:
    arrived, ends = asyncio.Event(), asyncio.Event()

    async def answer(_: web.Request) -> web.Response:
        arrived.set()
        await ends.wait()
        return web.Response(status=200)

    app = web.Application()
    app.router.add_post("/docs", answer)
    async with TestServer(app) as server, TrackingTransport() as transport:
        url = str(server.make_url("/docs"))
        with track_attempts() as attempts:
            batch = HttpRequest("POST", url, headers={"x-ms-cosmos-is-batch-request": "True"})
            sending = asyncio.create_task(transport.send(batch))
            await arrived.wait()
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
        ends.set()
    assert (attempts.answer_lost, attempts.succeeded) == (True, False)
