"""The triggers declare what the promises rest on. Importing the app opens nothing, and imports what it needs.

What every service rests on is looked at in the examples too.
"""

import importlib
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import azure.functions as func
import pytest

from cosmos_outbox import Names, Service
from cosmos_outbox.cli.command import load_service
from cosmos_outbox.cosmos.inbox.store import CosmosDatabase
from cosmos_outbox.functions.function_app import App
from cosmos_outbox.functions.function_app import app as function_app
from cosmos_outbox.functions.http import http_function
from cosmos_outbox.http import Answer, Answering, Request
from cosmos_outbox.inbox.entry import After, EntrySchema
from cosmos_outbox.inbox.message import Event, TolerantReader
from cosmos_outbox.inbox.ports import NoSource
from cosmos_outbox.inbox.receiver import WAIT_SECONDS
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.settings.names import Named
from cosmos_outbox.sources.http import HttpApi
from tests.support.functions import functions
from tests.support.tasks import Task, service, tasks

ROOT = Path(__file__).resolve().parents[2]
FUNCTIONS = functions()
EXAMPLES = sorted(
    f"examples.{file.parent.name}.function_app" for file in ROOT.glob("examples/*/function_app.py")
)
EVERY_APP = pytest.mark.parametrize("app", ["function_app", *EXAMPLES])


def trigger(name: str, app: str = "function_app") -> dict[str, Any]:
    declared = functions(app)[name].get_trigger()
    assert declared is not None
    settings: dict[str, Any] = declared.get_dict_repr()
    return settings


@EVERY_APP
def test_the_relay_retries_for_ever_and_checkpoints_no_batch_unsent(app: str) -> None:
    retry = functions(app)["relay"].get_settings_dict("retry_policy")
    assert retry is not None, f"{app}: give relay @app.retry, or the events of a failed batch are lost"
    assert retry["max_retry_count"] == "-1", (
        f"{app}: relay must retry for ever, or the events of a failed batch are lost"
    )
    assert retry["strategy"] == "exponential_backoff"
    assert (retry["minimum_interval"], retry["maximum_interval"]) == ("00:00:01", "00:01:00")


@EVERY_APP
def test_the_relay_starts_with_the_first_event_and_has_leases_of_its_own(app: str) -> None:
    relay = trigger("relay", app)
    assert relay["startFromBeginning"] is True
    assert relay["leaseContainerPrefix"] == "relay-"
    assert relay["createLeaseContainerIfNotExists"] is False
    assert relay["feedPollDelay"] <= 1000
    assert 3 * relay["leaseRenewInterval"] < relay["leaseExpirationInterval"] <= 20_000
    assert relay["containerName"] != relay["leaseContainerName"]


NAMED = {
    "function_app": [
        ("relay", "databaseName", "COSMOS_DATABASE", "contacts"),
        ("relay", "leaseDatabaseName", "COSMOS_DATABASE", "contacts"),
        ("relay", "containerName", "COSMOS_CONTAINER", "contacts"),
        ("relay", "leaseContainerName", "COSMOS_LEASE_CONTAINER", "leases"),
        ("contact_directory", "topicName", "SERVICEBUS_TOPIC", "contact-events"),
        ("contact_directory", "subscriptionName", "SERVICEBUS_SUBSCRIPTION", "contact-directory"),
    ],
    "examples.orders.function_app": [
        ("relay", "containerName", "COSMOS_CONTAINER", "orders"),
        ("relay", "leaseContainerName", "COSMOS_LEASE_CONTAINER", "orders-leases"),
        ("order_board", "topicName", "SERVICEBUS_TOPIC", "order-events"),
        ("order_board", "subscriptionName", "ORDER_BOARD_SUBSCRIPTION", "order-board"),
        ("order_mails", "subscriptionName", "ORDER_MAILS_SUBSCRIPTION", "order-mails"),
    ],
}


@pytest.mark.parametrize(("app", "named"), [(app, named) for app in NAMED for named in NAMED[app]])
def test_a_trigger_uses_the_services_own_name_or_that_of_a_setting(
    app: str, named: tuple[str, str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trigger and the app's own clients never use two containers or topics."""
    function, binding, setting, own = named
    service = load_service({"function_app": "infra.bootstrap"}.get(app, "examples.orders.service"))
    for given, expected in ((None, own), ("another", "another")):
        monkeypatch.delenv(setting, raising=False)
        if given:
            monkeypatch.setenv(setting, given)
        [trigger] = [
            each.get_trigger()
            for each in function_app(service).get_functions()
            if each.get_function_name() == function
        ]
        assert trigger is not None
        assert trigger.get_dict_repr()[binding] == expected


def test_a_reaction_to_another_teams_events_receives_from_that_teams_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = Service("office", [Task], Names(database="d", container="c", topic="office-events"))
    for name, topic in (("moves", Named("MOVES_TOPIC", "building-events")), ("news", None)):
        made.reaction(name, of="building", to=Task, target=lambda _: "7", order="any", topic=topic)(_leave)
    for given, expected in ((None, "building-events"), ("another", "another")):
        monkeypatch.delenv("MOVES_TOPIC", raising=False)
        if given:
            monkeypatch.setenv("MOVES_TOPIC", given)
        declared = {
            each.get_function_name(): each.get_trigger() for each in function_app(made).get_functions()
        }
        topics = [each.get_dict_repr()["topicName"] for name in ("moves", "news") if (each := declared[name])]
        assert topics == [expected, "office-events"]


def _leave(task: Task | None, event: Event) -> None:
    """Changes nothing."""


@EVERY_APP
def test_the_subscribers_receive_by_session(app: str) -> None:
    if app == "examples.imports.function_app":
        assert trigger("run_import", app)["type"] == "queueTrigger", (
            "it has no subscriber: a queue starts its jobs"
        )
        return
    receiving = [name for name in functions(app) if trigger(name, app)["type"] == "serviceBusTrigger"]
    assert receiving
    assert all(trigger(name, app)["isSessionsEnabled"] is True for name in receiving)


@EVERY_APP
def test_the_route_that_takes_everything_is_tried_last(app: str) -> None:
    names = sorted(name for name in functions(app) if trigger(name, app)["type"] == "httpTrigger")
    assert names[-1] == "unrouted", (
        f"{app}: unrouted takes the calls of {names[-1]}, which sorts behind it; rename {names[-1]}"
    )
    assert trigger("unrouted", app)["route"] == "{*path}"


@EVERY_APP
def test_what_takes_get_takes_head_and_nothing_else(app: str) -> None:
    """RFC 9110, 9.1. The host does not do this by itself (azure-functions-host issue 11625)."""
    for name in set(functions(app)) - {"unrouted"}:
        methods = {method.value for method in trigger(name, app).get("methods", ())}
        assert not methods & {"GET", "HEAD"} or methods == {"GET", "HEAD"}, f"{app}: {name} takes {methods}"


def test_every_call_of_the_api_has_its_function() -> None:
    calls = {
        (trigger(name)["route"], method.value)
        for name in FUNCTIONS
        if trigger(name)["type"] == "httpTrigger" and name != "unrouted"
        for method in trigger(name)["methods"]
        if method.value != "HEAD"
    }
    expected = {
        ("contacts", "POST"), ("contacts", "GET"), ("contacts/{id}", "GET"), ("contacts/{id}", "PATCH"),
        ("contacts/{id}", "PUT"),
        ("contacts/{id}", "DELETE"), ("directory", "GET"), ("health", "GET"), ("stuck", "GET"),
        ("stuck/{id}", "GET"), ("relay", "GET"), ("operations", "GET"), ("dependencies", "GET"),
        ("instance", "GET"), ("events/{type}/{id}", "GET"),
        ("stuck/{id}/retry", "POST"), ("stuck/{id}/discard", "POST"),
        ("dead-letters/collect", "POST"), ("subscribers", "GET"), ("openapi.json", "GET"), ("docs", "GET"),
        ("docs/{file}", "GET"), ("problems/{kind}", "GET"),
    }  # fmt: skip
    assert not calls - expected, f"new calls: {calls - expected}; add each here and to docs/use/api.md"
    assert not expected - calls, f"no function takes {expected - calls} any more: callers rely on these"


@EVERY_APP
def test_a_trigger_leaves_no_name_to_the_settings_of_the_host(app: str) -> None:
    """The host takes a setting that is missing for an error, also where the service names the thing itself."""
    for name in functions(app):
        left = [each for each in trigger(name, app).values() if isinstance(each, str) and "%" in each]
        assert not left, f"{app}: {name} has {left}"


@EVERY_APP
async def test_a_message_is_returned_only_after_a_wait_if_a_setting_is_missing(
    app: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Raised at once, a message would come back at once, and use up its deliveries in a minute."""
    waited: list[float] = []

    async def wait(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.delenv("COSMOS", raising=False)
    monkeypatch.setattr("asyncio.sleep", wait)
    for name, each in functions(app).items():
        if (
            declared := each.get_trigger()
        ) is not None and declared.get_binding_name() == "serviceBusTrigger":
            with pytest.raises(Misconfigured):
                await each.get_user_function()(message=None, context=None)
            assert waited == [WAIT_SECONDS], (
                f"{app}: let {name} call cosmos_outbox.functions.subscription.receive"
            )
            waited.clear()


@pytest.mark.parametrize("each", [service, Service("mirror", publishes=False, store=CosmosDatabase())])
def test_a_wrong_setting_is_found_when_the_host_lists_the_functions(
    each: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUNCTIONS_WORKER_RUNTIME", "python")
    for name in ("COSMOS__accountEndpoint", "SERVICEBUS__fullyQualifiedNamespace"):
        monkeypatch.setenv(name, "https://outbox.example")
    monkeypatch.setenv("SERVICEBUS_TOPIC", "events")
    monkeypatch.setenv("EVENT_TTL_SECONDS", "ten days")
    with pytest.raises(Misconfigured, match="EVENT_TTL_SECONDS is 'ten days'"):
        function_app(each)


def test_an_app_without_the_package_of_its_host_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_spec(name: str) -> object:
        return None if name == "azure.functions" else name

    monkeypatch.setattr("cosmos_outbox.settings.errors.find_spec", find_spec)
    with pytest.raises(Misconfigured, match=r"azure-functions: not installed.*cosmos-outbox\[functions\]"):
        importlib.reload(sys.modules["cosmos_outbox.functions"])


@EVERY_APP
def test_only_health_and_what_holds_no_data_can_be_called_without_a_key(app: str) -> None:
    levels = {name: str(trigger(name, app).get("authLevel", "")).lower() for name in functions(app)}
    assert {name for name, level in levels.items() if "anonymous" in level} == {
        "health", "get_operations_page", "get_openapi", "get_docs", "get_docs_file", "get_problem"
    }  # fmt: skip
    admin = {
        "get_relay", "list_stuck", "get_stuck", "retry_stuck", "discard_stuck", "collect_dead_letters",
        "get_subscribers", "get_dependencies", "get_instance", "list_events",
    }  # fmt: skip
    assert {name for name, level in levels.items() if "admin" in level} == admin & levels.keys()


STAGES = """
import asyncio, sys, threading
import function_app
from infra.bootstrap import service

def show():
    print(threading.active_count(), *sys.modules)

async def main():
    show()
    wired = service.wire({
        "COSMOS": "AccountEndpoint=http://127.0.0.1:1/;AccountKey=a2V5", "SERVICEBUS": "Endpoint=sb://b"
    })
    show()
    wired.relay
    show()
    wired.subscriptions
    show()
    await wired.resources.aclose()

asyncio.run(main())
"""
IN_COMMANDS = (
    "azure.identity", "azure.servicebus", "opentelemetry.sdk", "opentelemetry.exporter", "azure.monitor", "requests",
    "google.protobuf", "email_validator", "cosmos_outbox.worker", "cosmos_outbox.cli", "cosmos_outbox.preflight",
    "cosmos_outbox.servicebus", "cosmos_outbox.storagequeue", "cosmos_outbox.webhook", "cosmos_outbox.contracts",
)  # fmt: skip
FOR_A_MESSAGE = (
    "cosmos_outbox.composition.subscriptions", "cosmos_outbox.cosmos.inbox", "cosmos_outbox.inbox.effect",
    "cosmos_outbox.inbox.read_model", "cosmos_outbox.inbox.receiver", "cosmos_outbox.inbox.set_aside",
)  # fmt: skip
FOR_THE_RELAY = (
    "cosmos_outbox.composition.relay",
    "cosmos_outbox.cosmos.relay",
    "cosmos_outbox.outbox.aggregate_block",
)
FOR_A_CALL = "aiohttp", "azure.cosmos", "cosmos_outbox.composition.writer", "cosmos_outbox.cosmos"


def test_each_stage_of_an_app_loads_what_it_runs_and_no_more() -> None:
    """The SDKs and each hundred modules take as long to import as a fifth of the rest, at every start of an instance.

    The stages: the host lists the functions, the first call, the first page, the first message.
    """
    run = subprocess.run([sys.executable, "-c", STAGES], cwd=ROOT, capture_output=True, text=True, check=True)
    threads, stages = [], []
    for line in run.stdout.splitlines():
        number, *names = line.split()
        threads.append(int(number))
        stages.append(names)
    later: tuple[tuple[str, ...], ...] = (FOR_A_CALL, FOR_THE_RELAY, FOR_A_MESSAGE, IN_COMMANDS)
    for names, most in zip(stages, (55, 80, 92, 120), strict=True):
        early = [
            name for name in names if f"{name}.".startswith(tuple(f"{each}." for each in sum(later, ())))
        ]
        assert early == []
        assert len([name for name in names if name.startswith("cosmos_outbox")]) <= most
        later = later[1:]
    assert {"aiohttp", "azure.cosmos"} <= {*stages[1]}, "the first call needs them"
    assert threads == [1] * 4


def test_a_subscribing_services_app_has_subscribers_and_their_operations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def nothing(event: Event) -> None:
        """Is never asked for."""

    monkeypatch.delenv("SERVICEBUS_TOPIC", raising=False)
    service = Service("hotel", publishes=False, store=CosmosDatabase(), names=Names(topic="guest-events"))
    form = EntrySchema(TolerantReader, search={}, sorted_by=[])

    def project(state: TolerantReader, event: Event) -> After[TolerantReader]:
        return After(state)

    api = HttpApi(Named("GUESTS_API"))
    service.read_model(
        "guests", of="guest", form=form, project=project, state_of=TolerantReader.model_validate, source=api
    )
    service.read_model(
        "blind-guests", of="guest", form=form, project=project, first=lambda event: None, source=NoSource()
    )
    service.effect("letters", of="guest", subscription="post")(nothing)
    listed = {
        str(each.get_function_name()): each.get_trigger() for each in function_app(service).get_functions()
    }
    assert sorted(listed) == sorted(
        [
            "health", "unrouted", "get_openapi", "get_docs", "get_docs_file", "get_problem",
            "list_stuck", "get_stuck", "retry_stuck", "discard_stuck", "get_subscribers", "collect_dead_letters",
            "guests", "watch_guests", "walk_guests", "blind_guests", "watch_blind_guests", "letters", "watch_letters",
        ]
    )  # fmt: skip
    trigger = listed["letters"]
    assert trigger is not None
    reported = trigger.get_dict_repr()
    assert (reported["topicName"], reported["subscriptionName"], reported["isSessionsEnabled"]) == (
        "guest-events",
        "post",
        True,
    )


def test_resources_are_refused_by_a_service_that_does_not_keep_them() -> None:
    hotel = Service("hotel", publishes=False, store=CosmosDatabase(), names=Names(topic="guest-events"))
    with pytest.raises(
        ValueError, match="hotel only subscribes: give the resources to the service that keeps"
    ):
        function_app(hotel, resources=[tasks])


def test_two_functions_for_one_call_are_refused_when_the_host_lists_them() -> None:
    """The host would serve the one whose name sorts first."""
    app = App()
    for name in ("one", "other"):
        route = app.route(route=f"zones/{{{name}}}", methods=["GET", "DELETE"] if name == "one" else ["GET"])
        app.function_name(name)(route(http_function(Answering()(_zone))))
    with pytest.raises(ValueError, match=r"two functions take GET /zones/\{other\}"):
        app.get_functions()


async def _zone(req: Request) -> Answer:
    return Answer(200)


def test_a_function_hides_none_that_takes_other_methods() -> None:
    """``zones/parked`` looks as ``zones/{id}`` does, and the host asks each for its own method."""
    app = App()
    for name, route, method in (("change", "zones/{id}", "POST"), ("show", "zones/parked", "GET")):
        declared = app.route(route=route, methods=[method])
        app.function_name(name)(declared(http_function(Answering()(_zone))))
    assert [each.get_function_name() for each in app.get_functions()] == ["change", "show"]


def test_each_functions_signature_has_the_request_and_the_context() -> None:
    """It gives its context to no function that does not name it, and loads none that names it otherwise."""
    for function in function_app(service, resources=[tasks]).get_functions():
        trigger = function.get_trigger()
        if trigger is None or trigger.get_dict_repr()["type"] != "httpTrigger":
            continue
        found = inspect.signature(function.get_user_function())
        assert [*found.parameters] == ["req", "context"], function.get_function_name()
        assert function.get_user_function().__annotations__["context"] is func.Context
