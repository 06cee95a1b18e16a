"""The triggers declare what the promises rest on. Importing the app opens nothing, and imports what it needs.

What every service rests on is looked at in the examples too.
"""

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from inbox.receiver import WAIT_SECONDS
from infra.errors import Misconfigured
from tests.support.functions import functions

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
def test_the_relay_retries_for_ever_so_that_no_batch_is_checkpointed_unsent(app: str) -> None:
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
    assert (relay["containerName"], relay["leaseContainerName"]) == (
        "%COSMOS_CONTAINER%",
        "%COSMOS_LEASE_CONTAINER%",
    )


def test_the_subscriber_receives_by_session() -> None:
    subscriber = trigger("contact_directory")
    assert subscriber["isSessionsEnabled"] is True
    assert subscriber["topicName"] == "%SERVICEBUS_TOPIC%"


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
        ("contacts/{id}", "DELETE"), ("directory", "GET"), ("health", "GET"), ("parked", "GET"),
        ("parked/{id}", "GET"), ("relay", "GET"), ("operations", "GET"), ("dependencies", "GET"),
        ("instance", "GET"), ("history/{path}/{id}", "GET"),
        ("parked/{id}/discard", "POST"), ("parked/{path}/{id}/replay", "POST"), ("set-aside", "GET"),
        ("set-aside/{id}", "GET"), ("set-aside/{id}/apply", "POST"), ("set-aside/{id}/discard", "POST"),
        ("dead-letters/collect", "POST"), ("subscriber", "GET"),
    }  # fmt: skip
    assert not calls - expected, f"new calls: {calls - expected}; add each here and to docs/api.md"
    assert not expected - calls, f"no function takes {expected - calls} any more: callers rely on these"


@EVERY_APP
def test_the_operations_page_knows_every_list_of_the_service(app: str) -> None:
    """Of what its subscribers have not done: a list that is not named is not shown."""
    there = {
        trigger(name, app)["route"]
        for name in functions(app)
        if name.startswith(("list_set_aside", "list_effects"))
    }
    [get_instance] = [each for name, each in functions(app).items() if name == "get_instance"]
    named = inspect.getclosurevars(inspect.unwrap(get_instance.get_user_function())).nonlocals["lists"]
    assert set(named) == there, f"{app}: give operator_functions lists={sorted(there)}"


@pytest.mark.parametrize("name", ["relay", "contact_directory"])
def test_every_setting_that_a_trigger_names_is_in_the_sample(name: str) -> None:
    sample = json.loads((ROOT / "local.settings.sample.json").read_text())["Values"]
    for value in trigger(name).values():
        if isinstance(value, str) and value.startswith("%"):
            assert value.strip("%") in sample


@EVERY_APP
async def test_a_message_is_given_back_only_after_a_wait_also_where_a_setting_is_missing(
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
            assert waited == [WAIT_SECONDS], f"{app}: let {name} call infra.subscriber.receive"
            waited.clear()


@EVERY_APP
def test_only_health_and_the_page_without_data_can_be_called_without_a_key(app: str) -> None:
    levels = {name: str(trigger(name, app).get("authLevel", "")).lower() for name in functions(app)}
    assert {name for name, level in levels.items() if "anonymous" in level} == {
        "health",
        "get_operations_page",
    }
    admin = {
        "get_relay", "list_parked", "get_parked", "discard_parked", "replay_parked",
        "list_set_aside", "get_set_aside", "apply_set_aside", "discard_set_aside", "collect_dead_letters",
        "get_subscriber", "get_dependencies", "get_instance", "get_history",
        "list_effects", "get_effect", "apply_effect", "discard_effect", "pass_missing_effects",
    }  # fmt: skip
    admin |= {f"{name}_mails" for name in admin}
    assert {name for name, level in levels.items() if "admin" in level} == admin & levels.keys()


WIRED = """
import asyncio, sys, types
import function_app
from infra.bootstrap import wire
from infra.settings import load

LATE = [
    "aiohttp", "azure.identity", "azure.servicebus", "changefeed", "email_validator", "infra.aggregate_past",
    "infra.contacts.read_side", "infra.cosmos.history", "inbox.receiver", "inbox.state", "opentelemetry.sdk",
    "outbox.republish",
]

def loaded():
    # A module that waits for its first use is of another type.
    return {name for name in LATE if type(sys.modules.get(name)) is types.ModuleType}

async def main():
    print(sorted(loaded()))
    service = wire(load({"COSMOS": "AccountEndpoint=http://127.0.0.1:1/;AccountKey=a2V5", "SERVICEBUS": "Endpoint=sb://b"}))
    print(sorted(loaded()))
    await service.outbox.resources.aclose()

asyncio.run(main())
"""


def test_a_process_imports_what_it_needs_and_no_broker_before_it_sends() -> None:
    """The SDKs take as long to import as a fifth of the rest each, at every start of an instance."""
    run = subprocess.run([sys.executable, "-c", WIRED], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["[]", "['aiohttp']"]
