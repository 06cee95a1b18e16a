"""A support ticket's correlation id finds what was answered and what was logged."""

import asyncio
import json
import logging

import azure.functions as func
import pytest

from infra.correlation import correlated, current, tag_log_lines
from infra.http import request as edge
from infra.http.answering import Answering
from infra.http.responses import no_content
from outbox.errors import AggregateNotFound

_log = logging.getLogger(__name__)


@pytest.fixture(autouse=True)
def tagged() -> None:
    tag_log_lines()
    tag_log_lines()


def asked(correlation_id: str | None) -> func.HttpRequest:
    headers = {} if correlation_id is None else {"x-correlation-id": correlation_id}
    return func.HttpRequest("GET", "http://localhost/api/contacts", headers=headers, body=b"")


async def test_an_answer_has_the_id_that_was_given_or_one_that_was_made() -> None:
    @Answering()
    async def function(req: func.HttpRequest) -> func.HttpResponse:
        assert edge.origin(req).correlation_id == current()
        return no_content()

    assert (await function(asked("ticket-7"))).headers["x-correlation-id"] == "ticket-7"
    made = {(await function(asked(given))).headers["x-correlation-id"] for given in (None, "not well-formed")}
    assert len(made) == 2
    assert current() is None


async def test_a_problem_has_the_id_and_so_has_every_line_of_the_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @Answering()
    async def function(req: func.HttpRequest) -> func.HttpResponse:
        await asyncio.create_task(says_something())
        raise AggregateNotFound("there is none")

    async def says_something() -> None:
        _log.warning("100 %% of %s", "it")
        _log.warning("100 % of it")

    with caplog.at_level("INFO"):
        answer = await function(asked("a=50|b"))
        _log.warning("later")
    assert (answer.headers["x-correlation-id"], json.loads(answer.get_body())["correlationId"]) == (
        "a=50|b",
        "a=50|b",
    )
    assert [record.getMessage() for record in caplog.records] == [
        "100 % of it [a=50|b]", "100 % of it [a=50|b]", "later",
    ]  # fmt: skip


def test_a_line_about_a_message_of_another_writer_may_have_any_id(caplog: pytest.LogCaptureFixture) -> None:
    with correlated("100 %s"):
        _log.warning("received %s", "it")
    assert caplog.records[0].getMessage() == "received it [100 %s]"
