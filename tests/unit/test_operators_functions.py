"""The operators' calls of an app, as the host calls its functions, but without a host: over stores in memory."""

import inspect
import json

import azure.functions as func
import pytest

from cosmos_outbox import Event, Named, SqliteFile, SubscriberService, testing
from cosmos_outbox.functions import answering
from cosmos_outbox.functions.function_app import app as function_app
from cosmos_outbox.http import Answer, Request, methods
from cosmos_outbox.inbox.set_aside import RecordState
from cosmos_outbox.outbox.event import WireModel
from cosmos_outbox.testing import in_memory, message
from tests.support.functions import Calls, of_app
from tests.support.tasks import service, tasks

NONE = "0" * 32


async def test_an_operator_gives_up_an_effect_of_which_nobody_knows_and_the_message_that_was_set_aside(
    caplog: pytest.LogCaptureFixture,
) -> None:
    dealer = SubscriberService("dealer", SqliteFile(Named("DEALER", "dealer.db")), topic="cars")

    @dealer.effect("mails", of="car", repeatable=False)
    async def mail(told: Event) -> None:
        raise ZeroDivisionError

    call = Calls(function_app(dealer))
    async with in_memory(dealer) as memory:
        sold = message(("car", "1"), "Sold", 1, data={"price": 5})
        [aside] = await memory.deliver(sold)
        assert await call("health") == {"status": "healthy"}
        [effect] = (await call("list_effects"))["items"]
        assert (effect["aggregateType"], effect["sequence"], effect["state"]) == (
            "car",
            1,
            "may have been handled",
        )
        for wrong in ("7", NONE):
            told = await call("discard_effect", {"reason": "not ours"}, status=404, id=wrong)
            assert told["detail"].startswith("no open effect has this id"), "it is no parked event"
        assert (
            await call("discard_effect", {"reason": "it came by post"}, status=204, id=effect["id"]) is None
        )
        assert (await call("list_effects"))["items"] == []
        assert "it came by post" in caplog.text

        [listed] = (await call("list_set_aside"))["items"]
        assert (listed["id"], "message" in listed) == (aside.id, False)
        shown = await call("get_set_aside", id=aside.id)
        assert json.loads(shown["message"]["body"])["price"] == 5
        assert (await call("get_subscriber"))["setAside"] == {"waiting": 0, "refused": 1}
        for name, body in (
            ("get_set_aside", None),
            ("apply_set_aside", {}),
            ("discard_set_aside", {"reason": "r"}),
        ):
            told = await call(name, body, status=404, id="7")
            assert told["detail"] == "no record has this id: take an id from the list of what is set aside"
        assert await call("apply_set_aside", {}, status=204, id=aside.id) is None, "what is given up is done"
        assert (await call("list_set_aside"))["items"] == []


async def test_the_reason_that_an_operator_gives_stays_with_the_record() -> None:
    dealer = SubscriberService("dealer", SqliteFile(Named("DEALER", "dealer.db")), topic="cars")

    @dealer.effect("mails", of="car", on=["Sold"])
    async def mail(told: Event) -> None:
        raise ZeroDivisionError

    call = Calls(function_app(dealer))
    async with in_memory(dealer) as memory:
        [aside] = await memory.deliver(message(("car", "1"), "Sold", 1, data={}))
        told = await call("discard_set_aside", {"reason": "  "}, status=400, id=aside.id)
        assert [each["field"] for each in told["errors"]] == ["reason"], "an operator has one"
        assert await call("discard_set_aside", {"reason": " not ours "}, status=204, id=aside.id) is None
        record = await dealer().subscriptions["mails"].subscriber.retrier.set_aside.get(aside.id)
        assert (record.state, record.reason) == (RecordState.DISCARDED, "not ours")
        told = await call("get_set_aside", status=404, id=aside.id)
        assert "closed as discarded" in told["detail"]


async def test_an_app_is_as_healthy_as_its_store() -> None:
    call = Calls(function_app(service))
    async with in_memory(service) as memory:
        memory.faults.unavailable()
        await call("health", status=503)
        assert await call("health") == {"status": "healthy"}


async def test_a_browser_asks_for_the_page_without_a_key_and_once() -> None:
    app = function_app(service)
    page = await testing.call(app, "GET", "/api/operations")
    assert (page.status_code, page.mimetype) == (200, "text/html")
    known = {"If-None-Match": page.headers["ETag"]}
    assert (await testing.call(app, "GET", "/api/operations", headers=known)).status_code == 304


def test_the_calls_of_a_second_subscriber_have_its_name_in_front() -> None:
    dealer = SubscriberService("dealer", SqliteFile(Named("DEALER", "dealer.db")), topic="cars")
    dealer.effect("mails", of="car")(_nothing)
    dealer.effect("late-calls", of="car")(_nothing)
    triggers = {name: each.get_trigger() for name, each in of_app(function_app(dealer)).items()}
    taken = {name: each.get_dict_repr().get("route") for name, each in triggers.items() if each is not None}
    for name, route in (
        ("list_effects", "effects"),
        ("discard_effect", "effects/{id}/discard"),
        ("get_subscriber", "subscriber"),
        ("list_set_aside", "set-aside"),
    ):
        assert (taken[name], taken[f"{name}_late_calls"]) == (route, f"late-calls/{route}")


async def test_a_path_that_nobody_has_is_answered_with_where_to_begin() -> None:
    dealer = SubscriberService("dealer", SqliteFile(Named("DEALER", "dealer.db")), topic="cars")
    dealer.effect("mails", of="car")(_nothing)
    told = await Calls(function_app(dealer))("unrouted", status=404, path="contacts/7")
    assert "operators begin at /api/subscriber" in told["detail"]
    told = await Calls(function_app(dealer))("unrouted", status=404, path="partner/parked")
    assert "operators begin at /api/subscriber" in told["detail"], "it has no destinations"
    office = Calls(function_app(service, resources=[tasks]))
    told = await office("unrouted", status=404, path="partner/parked/7")
    assert told["detail"] == "the service has no destination 'partner'; it has: none"
    for path in ("partner/tasks", "watch_relay"):  # a timer has a function, and no path
        told = await office("unrouted", status=404, path=path)
        assert "tasks are at /api/tasks" in told["detail"]


async def test_an_aggregate_of_no_such_name_is_answered_with_those_that_there_are() -> None:
    office = Calls(function_app(service))
    told = await office("get_history", status=404, path="cars", id="7")
    assert told["detail"] == "this service has no cars: call history/officeTasks/{id}"
    told = await office("replay_parked", {}, status=404, path="cars", id="7")
    assert told["detail"] == "this service has no cars: call parked/officeTasks/{id}/replay"


async def _nothing(told: Event) -> None:
    """Is never asked for."""


async def test_what_a_call_of_ones_own_takes_is_told_by_its_docstring() -> None:
    app = function_app(service)

    @app.route(route="board", methods=methods.READING)
    @answering(service)
    async def board(req: Request) -> Answer:
        """GET /board?city=&pageSize=: the board."""
        return Answer(200)

    told = (await Calls(app)("get_openapi"))["paths"]["/api/board"]["get"]
    assert told["summary"] == "The board"
    city, size, *_ = told["parameters"]
    assert (city["name"], "pageSize" in json.dumps(size)) == ("city", True)


async def test_what_a_call_of_ones_own_gives_refuses_and_is_asked_for_is_told_by_its_decorator() -> None:
    class City(WireModel):
        name: str

    class Wanted(WireModel):
        longest_way: int

    class Closed(Exception):
        """The board is closed."""

    app = function_app(service)

    @app.route(route="board", methods=methods.READING)
    @answering(service, gives=City, query=Wanted, errors={Closed: 410})
    async def board(req: Request) -> Answer:
        """GET /board: the board."""
        raise Closed("until May")

    call = Calls(app)
    told = (await call("get_openapi"))["paths"]["/api/board"]["get"]
    assert [each["name"] for each in told["parameters"] if each["in"] == "query"] == ["longestWay"]
    assert told["responses"]["200"]["content"]["application/json"]["example"].keys() == {"name"}
    assert {"410", "429", "503"} <= told["responses"].keys()
    assert (await call("board", status=410))["detail"] == "until May"


def test_the_host_finds_the_request_and_its_context_in_the_signature_of_each_function() -> None:
    """It gives its context to no function that does not name it, and loads none that names it otherwise."""
    for function in function_app(service, resources=[tasks]).get_functions():
        trigger = function.get_trigger()
        if trigger is None or trigger.get_dict_repr()["type"] != "httpTrigger":
            continue
        found = inspect.signature(function.get_user_function())
        assert [*found.parameters] == ["req", "context"], function.get_function_name()
        assert function.get_user_function().__annotations__["context"] is func.Context
