"""A call reaches the function that the host would choose."""

import azure.functions as func
import pytest

from cosmos_outbox.testing import call, in_memory
from tests.testing.booking_calls import app
from tests.testing.bookings import service


async def test_route_query_headers_and_body_arrive() -> None:
    async with in_memory(service) as memory:
        created = await call(app, "POST", "/api/bookings", json={"title": "A table"})
        booking = created.get_body().decode()
        assert (created.status_code, [event.aggregate.id for event in memory.events]) == (201, [booking])
        got = await call(app, "get", f"/api/bookings/{booking}?wanted=two%20words", headers={"X-Trace": "t"})
        assert got.get_body() == b"A table two words t"


@pytest.mark.parametrize(
    ("method", "path", "status"), [("DELETE", "/api/bookings/7", 405), ("GET", "/api/tables", 404)]
)
async def test_what_no_function_takes_gets_the_answer_of_the_catch_all(
    method: str, path: str, status: int
) -> None:
    async with in_memory(service):
        answer = await call(app, method, path)
    assert (answer.status_code, answer.mimetype) == (status, "application/problem+json")


async def test_an_app_without_a_function_for_the_call_says_so() -> None:
    with pytest.raises(LookupError, match="GET /api/x"):
        await call(func.FunctionApp(), "GET", "/api/x")
