"""A support ticket's correlation id finds what was answered and what was logged."""

import asyncio
import json
import logging

import azure.functions as func
import pytest

from cosmos_outbox.http import request as edge
from cosmos_outbox.http.answering import Answering
from cosmos_outbox.http.message import Answer, Request
from cosmos_outbox.http.responses import no_content
from cosmos_outbox.outbox.errors import AggregateNotFound
from cosmos_outbox.telemetry.correlation import correlated, current, tag_log_lines
from tests.support.functions import functions

_log = logging.getLogger(__name__)


@pytest.fixture(autouse=True)
def tagged() -> None:
    tag_log_lines()
    tag_log_lines()


def asked(correlation_id: str | None) -> Request:
    headers = {} if correlation_id is None else {"x-correlation-id": correlation_id}
    return Request("GET", "http://localhost/api/contacts", headers)


async def test_an_answer_has_the_id_that_was_given_or_one_that_was_made() -> None:
    @Answering()
    async def function(req: Request) -> Answer:
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
    async def function(req: Request) -> Answer:
        await asyncio.create_task(says_something())
        raise AggregateNotFound("there is none")

    async def says_something() -> None:
        _log.warning("100 %% of %s", "it")
        _log.warning("100 % of it")

    with caplog.at_level("INFO"):
        answer = await function(asked("a=50|b"))
        _log.warning("later")
    assert (answer.headers["x-correlation-id"], json.loads(answer.body)["correlationId"]) == (
        "a=50|b",
        "a=50|b",
    )
    assert [record.getMessage() for record in caplog.records] == [
        "100 % of it [a=50|b]", "100 % of it [a=50|b]", "later",
    ]  # fmt: skip


FORGED = "x\n12:00:00 error: all is lost\r\u2028\x1b[2J\u202e\x85\x0b\ud800"
HARMLESS = r"x\n12:00:00 error: all is lost\r\u2028\x1b[2J\u202e\x85\x0b\ud800"


def written(record: logging.LogRecord) -> str:
    return logging.Formatter("%(message)s").format(record)


def test_what_others_have_written_makes_no_line_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    """A message's subject, its correlation id, and an error that quotes either."""
    with correlated(FORGED):
        _log.warning("the subject is %s", FORGED)
        _log.warning("failed: %s", ValueError(FORGED))
        _log.warning(FORGED)
    texts = [written(record) for record in caplog.records]
    assert texts == [
        f"the subject is {HARMLESS} [{HARMLESS}]", f"failed: {HARMLESS} [{HARMLESS}]", f"{HARMLESS} [{HARMLESS}]",
    ]  # fmt: skip
    assert {record.__dict__["correlation_id"] for record in caplog.records} == {HARMLESS}


ROUTED = sorted(
    (app, name)
    for app in ("function_app", "examples.orders.function_app")
    for name, function in functions(app).items()
    if (trigger := function.get_trigger()) is not None and trigger.type == "httpTrigger"
)


@pytest.mark.parametrize(("app", "name"), ROUTED)
async def test_every_function_answers_with_the_id(
    app: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is set, so most of them fail, which is an answer too; the catch-all's is 404."""
    monkeypatch.delenv("COSMOS", raising=False)
    given = func.HttpRequest(
        "GET", "http://localhost/api/x", headers={"x-correlation-id": "ticket-7"}, body=b""
    )
    answer = await functions(app)[name].get_user_function()(given)
    assert answer.headers["x-correlation-id"] == "ticket-7"
    if answer.status_code >= 400:
        assert json.loads(answer.get_body())["correlationId"] == "ticket-7"
    else:
        assert answer.status_code == 200
