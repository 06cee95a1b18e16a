"""A support ticket's correlation id finds what was answered and what was logged."""

import asyncio
import json
import logging
from dataclasses import replace

import azure.functions as func
import pytest

from cosmos_outbox.http import request as edge
from cosmos_outbox.http.answering import Answering
from cosmos_outbox.http.message import Answer, Request
from cosmos_outbox.http.responses import no_content
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.outbox.errors import AggregateNotFound
from cosmos_outbox.outbox.feed import Unread, caused_by
from cosmos_outbox.settings.wire_names import WireNames
from cosmos_outbox.telemetry.correlation import correlated, current, tag_log_lines
from cosmos_outbox.wiring.outbox import wire_outbox
from cosmos_outbox.wiring.subscription import wire_subscriber
from cosmos_outbox.worker.running import running
from infra.bootstrap import service as contact_service
from tests.support import inbox
from tests.support.functions import functions
from tests.support.publishing import event

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


def test_a_line_about_a_message_of_another_writer_may_have_any_id(caplog: pytest.LogCaptureFixture) -> None:
    with correlated("100 %s"):
        _log.warning("received %s", "it")
    assert caplog.records[0].getMessage() == "received it [100 %s]"


FORGED = "x\n12:00:00 error: all is lost\r\u2028\x1b[2J\u202e\x85\x0b\ud800"
HARMLESS = r"x\n12:00:00 error: all is lost\r\u2028\x1b[2J\u202e\x85\x0b\ud800"


def written(record: logging.LogRecord) -> str:
    return logging.Formatter("%(message)s").format(record)


def test_what_others_have_written_makes_no_line_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    """A message's subject, its correlation id, and an error that tells either."""
    with correlated(FORGED):
        _log.warning("the subject is %s", FORGED)
        _log.warning("failed: %s", ValueError(FORGED))
        _log.warning(FORGED)
    texts = [written(record) for record in caplog.records]
    assert texts == [
        f"the subject is {HARMLESS} [{HARMLESS}]", f"failed: {HARMLESS} [{HARMLESS}]", f"{HARMLESS} [{HARMLESS}]",
    ]  # fmt: skip
    assert {record.__dict__["correlation_id"] for record in caplog.records} == {HARMLESS}


def test_a_traceback_is_indented_whatever_its_error_says(caplog: pytest.LogCaptureFixture) -> None:
    try:
        int(FORGED)
    except ValueError:
        _log.exception("a bug")
    first, *more = written(caplog.records[0]).split("\n")
    assert first == "a bug"
    assert [line for line in more if not line.startswith("  ")] == []
    assert any("ValueError" in line and "all is lost" in line for line in more)
    assert not {"\r", "\u2028", "\x1b", "\x85", "\x0b"} & {*"".join(more)}


def test_a_line_whose_arguments_do_not_fit_does_not_fail_its_writer() -> None:
    make = logging.getLogRecordFactory()
    assert make("", logging.WARNING, "", 1, "%s and %s", ("one",), None).args == ("one",)


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


def test_a_line_of_the_relay_about_several_events_names_the_requests_of_the_first_ten() -> None:
    events = [replace(event("a", number), correlation_id=f"r-{min(number, 12)}") for number in range(1, 20)]
    assert caused_by(*events) == "".join(f" [r-{number}]" for number in range(1, 11))
    assert (
        caused_by(Unread(events[0], "the store is away"), replace(events[1], correlation_id=None)) == " [r-1]"
    )


async def test_what_the_timer_tries_again_is_told_under_the_id_of_its_request() -> None:
    seen: list[str | None] = []

    async def handle(_: Event) -> None:
        seen.append(current())

    settings = contact_service.settings(
        {
            "COSMOS": "AccountEndpoint=http://127.0.0.1:1/;AccountKey=AA==;",
            "SERVICEBUS": "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=k;SharedAccessKey=AA==",
        }
    )
    outbox = wire_outbox(settings, WireNames("/contacts"))
    async with outbox.resources:
        subscriber = wire_subscriber(settings, outbox, "s", inbox.read, handle)
        received = replace(inbox.event(1), data={"correlationId": "ticket-7"})
        await subscriber.retrier.handle(received)
        with correlated("message-8"):
            await subscriber.retrier.handle(received)
        await subscriber.retrier.handle(replace(received, data={}))
    assert seen == ["ticket-7", "message-8", None]


async def test_a_program_that_runs_a_service_has_its_log_lines_on_one_line_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = {"COSMOS": "AccountEndpoint=http://x/;AccountKey=eA==;", "SERVICEBUS": "Endpoint=sb://x/;A=b"}
    before = logging.getLogRecordFactory()
    logging.setLogRecordFactory(logging.LogRecord)
    try:
        async with running(contact_service, environment=settings, relay=False, subscribers=False):
            _log.warning("one line\nanother")
    finally:
        logging.setLogRecordFactory(before)
    assert caplog.messages == [r"one line\nanother"]
