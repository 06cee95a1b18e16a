"""Bicep declares what the code and preflight need, and the parameter files fit the declarations."""

import ast
import importlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from fnmatch import fnmatch
from typing import Any

import pytest
from pydantic import TypeAdapter

from application.directory import Field
from cosmos_outbox.cosmos.aggregates.listing import ListQuery
from cosmos_outbox.cosmos.maintenance.inspection import ContainerState, IndexingPolicy
from cosmos_outbox.outbox.selection import Selection, orders
from cosmos_outbox.preflight.cosmos import judge
from cosmos_outbox.preflight.plan import Needed, needed
from cosmos_outbox.preflight.report import Finding, Status
from cosmos_outbox.preflight.resources import resources
from cosmos_outbox.preflight.servicebus import judge_subscription, judge_topic
from cosmos_outbox.servicebus.inspection import SubscriptionState, TopicState
from cosmos_outbox.settings.transports import servicebus_of
from domain.contact import Contact
from examples.orders.service import service as order_service
from infra.bootstrap import service as contact_service
from infra.directory import FORM
from tests.deploy import bicep
from tests.deploy.bicep import MAIN
from tests.support.contacts import NOON
from tests.support.functions import functions
from tests.support.paths import ROOT

CONNECTED = {"COSMOS": "x", "SERVICEBUS": "x"}
SETTINGS = contact_service.settings(CONNECTED)
SERVICES = {"contacts": contact_service, "orders": order_service}
"""Each service that a deployment of this Bicep is made for."""


def containers(service: str) -> dict[str, Needed]:
    declared = SERVICES[service]
    return {need.setting: need for need in needed(declared.settings(CONNECTED), declared)}


CONTAINERS = containers("contacts")

_DURATION = TypeAdapter(timedelta)


def faults(findings: Iterator[Finding]) -> list[str]:
    return [str(finding) for finding in findings if finding.status is not Status.OK]


@pytest.mark.parametrize("service", SERVICES)
def test_preflight_finds_nothing_wrong_with_what_a_service_declares(service: str) -> None:
    made = {each["setting"]: each for each in resources(SERVICES[service], {})["cosmos"]["containers"]}
    for setting, need in containers(service).items():
        each = made.pop(setting)
        excluded = () if "/*" in each["indexes"] else ("/*",)
        composite = tuple(tuple(paths) for paths in each["composite_indexes"])
        state = ContainerState(
            tuple(each["partition_key"]),
            each["ttl"],
            IndexingPolicy(True, tuple(each["indexes"]), excluded, composite),
        )
        assert faults(judge(need, state, "contacts")) == []
        assert set(state.indexing.included) == {f"{path}/?" for path in need.queried}
    assert made == {}


def test_bicep_makes_each_declared_container_as_it_is_declared() -> None:
    assert MAIN.declaration("var", "declared").text.strip() == "= loadJsonContent('service.json')"
    given = MAIN.declaration("module", "cosmos").properties()
    assert (given["containers"], given["containerName"]) == ("declared.cosmos.containers", "containerName")
    module = bicep.read("modules/cosmos.bicep")
    assert re.findall(r"sqlDatabases/containers@\S+ = (.*)$", module.text, re.MULTILINE) == [
        "[for each in containers: {"
    ]
    container = module.declaration("resource", "container").properties()
    assert {
        name: container[name]
        for name in ("name", "id", "paths", "includedPaths", "excludedPaths", "defaultTtl")
    } == {
        "name": "each.name",
        "id": "each.name",
        "paths": "each.partition_key",
        "includedPaths": "map(each.indexes, path => { path: path })",
        "excludedPaths": "contains(each.indexes, '/*') ? [] : [{ path: '/*' }]",
        "defaultTtl": "nothingExpires && each.name == containerName ? null : each.ttl",
    }
    assert "map(each.composite_indexes, paths => map(paths, path => " in container["compositeIndexes"]


@pytest.mark.parametrize(
    ("setting", "source"),
    [
        ("COSMOS_PARKED_CONTAINER", "cosmos_outbox/cosmos/relay/parking_lot.py"),
        ("COSMOS_LEASE_CONTAINER", "cosmos_changefeed/lease_store.py"),
        ("COSMOS_SET_ASIDE_CONTAINER", "cosmos_outbox/cosmos/inbox/records.py"),
    ],
)
def test_preflight_knows_each_property_by_which_a_container_is_queried(setting: str, source: str) -> None:
    module = importlib.import_module(source.removesuffix(".py").replace("/", "."))
    written = [
        each.value
        for each in ast.walk(ast.parse((ROOT / source).read_text()))
        if isinstance(each, ast.Constant)
    ]
    queries = [
        text
        for text in (*vars(module).values(), *written)
        if isinstance(text, str) and text.startswith("SELECT ")
    ]
    assert queries
    used = {
        "/" + path.replace(".", "/")
        for text in queries
        for path in re.findall(
            r"\bc\.([\w.]+)", text.partition(" WHERE ")[2]
        )  # what is selected needs no index
    }
    assert used - {"/id"} == set(CONTAINERS[setting].queried)


def test_preflight_knows_each_property_by_which_contacts_are_listed() -> None:
    found, sorted_by = set[str](), set[tuple[str, ...]]()
    for order in orders(Contact):
        text = ListQuery(Contact, Selection(order, dict.fromkeys(Contact.found_by), ["1"], NOON), '[1, ""]'
                         if order.by_change else '["", ""]').text(1)  # fmt: skip
        paths = [f"/{path.replace('.', '/')}" for path in re.findall(r"\bc\.([\w.]+)", text)]
        found |= {*paths}
        sorted_by.add(tuple(paths[-3:]))
    need = CONTAINERS["COSMOS_CONTAINER"]
    assert found - {"/id", "/_ts"} == {*need.queried}  # the two are always indexed
    assert sorted_by == {*need.composite}


def test_the_directory_is_sorted_by_every_field_and_by_its_dates() -> None:
    assert [*FORM.sorted_by] == [*(field.value for field in Field), "created", "changed"]
    assert {*FORM.search} == {*FORM.sorted_by, "lastName"}


def test_missing_indexes_of_board_and_parked_orders_are_reported() -> None:
    """What the contact service's indexes would mean for the orders."""
    needs = containers("orders")
    state = ContainerState(("/partitionKey",), -1, IndexingPolicy(True, ("/deleted/?",), ("/*",), ()))
    [fault] = faults(judge(needs["ORDER_BOARD_CONTAINER"], state, "orders"))
    assert "/search/customer/?, /search/status/? is queried and not indexed" in fault
    everything = replace(state, indexing=IndexingPolicy(True, ("/*",), (), ()))
    [fault] = faults(judge(needs["ORDER_BOARD_CONTAINER"], everything, "orders"))
    assert "no composite index over /search/customer, /id" in fault
    parked = ("/type/?", "/aggregateType/?", "/position/?", "/parkedAt/?")
    by_type_alone = replace(state, indexing=IndexingPolicy(True, parked, ("/*",), ()))
    [fault] = faults(judge(needs["COSMOS_PARKED_CONTAINER"], by_type_alone, "orders"))
    assert "/aggregateId/? is queried and not indexed" in fault


def test_preflight_finds_nothing_wrong_with_topic_and_subscription() -> None:
    module, defaults = bicep.read("modules/servicebus.bicep"), MAIN.defaults()
    topic = module.declaration("resource", "topic").properties()
    subscription = module.declaration("resource", "subscribers").properties()
    window = _DURATION.validate_python(defaults[topic["duplicateDetectionHistoryTimeWindow"]])
    topic_state = TopicState(
        active="status" not in topic,
        detects_duplicates=topic["requiresDuplicateDetection"] == "true",
        duplicate_window=window,
        partitioned=defaults[topic["enablePartitioning"]] == "true",
        deleted_when_idle_for=timedelta() if "autoDeleteOnIdle" in topic else None,
    )
    subscription_state = SubscriptionState(
        active="status" not in subscription,
        has_sessions=subscription["requiresSession"] == "true",
        max_delivery_count=int(defaults[subscription["maxDeliveryCount"]]),
        dead_letters_expired=subscription["deadLetteringOnMessageExpiration"] == "true",
        forwards_to=subscription.get("forwardTo"),
        deleted_when_idle_for=timedelta() if "autoDeleteOnIdle" in subscription else None,
    )
    assert (
        faults(
            judge_topic(
                servicebus_of(SETTINGS.transport),
                timedelta(seconds=SETTINGS.event_ttl_seconds),
                topic_state,
                survive=window,
            )
        )
        == []
    )
    assert faults(judge_subscription("s", subscription_state, survive=window)) == []


def test_the_subscriptions_of_other_services_are_as_the_apps_own() -> None:
    module = bicep.read("modules/servicebus.bicep")
    own, others = (
        module.declaration("resource", name).properties() for name in ("subscribers", "otherSubscribers")
    )
    assert {**own, "name": ""} == {**others, "name": ""}


def test_two_apps_share_the_functions_out_without_rest() -> None:
    """Which are whose is the command's: tests/preflight/test_resources.py."""
    callers, workers = (bicep.DECLARED["functions"][whose] for whose in ("callers", "workers"))
    assert {*functions()} - {*callers, *workers} == {"get_problem", "health", "unrouted"}
    assert {*callers}.isdisjoint(workers)
    off = {
        app: MAIN.declaration("module", app).properties()["disabledFunctions"]
        for app in ("app", "workersApp")
    }
    assert off["app"] == "declared.functions.workers"
    assert off["workersApp"].startswith("union(declared.functions.callers, ")
    assert set(re.findall(r"'function:(\w+)'", MAIN.declaration("module", "workersApp").text)) == {"relay"}


def test_no_call_of_an_operator_is_answered_by_the_app_of_callers() -> None:
    levels = {
        name: str(function.get_trigger().get_dict_repr()["authLevel"].value)  # type: ignore[union-attr]  # it has one
        for name, function in functions().items()
        if function.is_http_function()
    }
    callers = {*bicep.DECLARED["functions"]["callers"]}
    assert callers <= set(levels), "what no request starts works in the other app"
    assert {name for name, level in levels.items() if level == "admin"}.isdisjoint(callers)


def parameters(name: str) -> Mapping[str, Any]:
    content = json.loads((ROOT / "deploy" / name).read_text())["parameters"]
    return {key: each["value"] for key, each in content.items()}


@pytest.mark.parametrize("name", ["main.parameters.json", "production.parameters.json"])
def test_a_parameters_file_gives_declared_and_all_required_parameters(name: str) -> None:
    given, declared = set(parameters(name)), MAIN.names("param")
    assert given <= declared
    asked = {"alertEmail"} if name.startswith("production") else set()
    assert declared - set(MAIN.defaults()) - asked <= given


def test_every_parameter_can_be_set_through_azd_by_a_variable_of_its_own() -> None:
    """azd turns the text into a number, a flag or, from JSON, a list, as the parameter is declared."""
    given = parameters("main.parameters.json")
    assert set(given) == MAIN.names("param")
    variables = [re.fullmatch(r"\$\{([A-Z_]+)(?:=.*)?\}", text) for text in given.values()]
    assert all(variables)
    assert len({found[1] for found in variables if found}) == len(given)


def test_production_survives_the_loss_of_a_zone_and_can_be_restored() -> None:
    given = {**MAIN.defaults(), **parameters("production.parameters.json")}
    assert given["zoneRedundant"] is True
    assert given["storageSku"] in ("Standard_ZRS", "Standard_GZRS")
    assert given["cosmosBackup"].startswith("Continuous")


def test_the_partitioned_topic_and_its_setting_are_one_parameter() -> None:
    topic = bicep.read("modules/servicebus.bicep").declaration("resource", "topic").properties()
    assert topic["enablePartitioning"] == "topicPartitioned"
    assert MAIN.declaration("module", "serviceBus").properties()["topicPartitioned"] == "topicPartitioned"
    setting = bicep.settings()["SERVICEBUS_TOPIC_PARTITIONED"]
    assert setting == "string(topicPartitioned)"
    environment = {"COSMOS": "x", "SERVICEBUS": "x", "SERVICEBUS_TOPIC_PARTITIONED": "True"}
    assert servicebus_of(contact_service.settings(environment).transport).partitioned, (
        "string(true) is True in a template"
    )


def test_the_instances_of_both_apps_are_bounded_by_the_parameters() -> None:
    scale = bicep.read("modules/functions.bicep").declaration("resource", "site").properties()
    assert scale["maximumInstanceCount"] == "maximumInstanceCount"
    assert scale["perInstanceConcurrency"] == "httpConcurrency"
    for app in ("app", "workersApp"):
        given = MAIN.declaration("module", app).properties()
        assert given["maximumInstanceCount"] == "maximumInstanceCount"
        assert given["httpConcurrency"] == "httpConcurrency"


def test_only_the_app_that_answers_http_lets_browsers_in() -> None:
    assert MAIN.declaration("module", "app").properties()["allowedOrigins"] == "allowedOrigins"
    assert MAIN.declaration("module", "workersApp").properties()["allowedOrigins"] == "[]"
    site = bicep.read("modules/functions.bicep").declaration("resource", "site").properties()
    assert site["allowedOrigins"] == "allowedOrigins"


def test_sign_in_is_required_but_on_paths_of_operators_and_probes() -> None:
    """A path that is open here holds no data."""
    open_paths = MAIN.declaration("var", "openPaths").words()
    workers = {*bicep.DECLARED["functions"]["workers"]}
    routes = {
        f"/api/{trigger['route']}": str(trigger["authLevel"].value)
        for name, function in functions().items()
        if name not in workers
        for trigger in (binding.get_dict_repr() for binding in function.get_bindings())
        if trigger["type"] == "httpTrigger"
    }
    covering = {
        route: [each for each in open_paths if fnmatch(route, each)]
        for route in routes
        if "*" not in route  # what no function takes, which answers that there is no such call
    }
    for route, found in covering.items():
        assert bool(found) == (routes[route] in ("admin", "anonymous")), route
    assert {each for found in covering.values() for each in found} == set(open_paths)


def test_platform_authentication_is_on_as_long_as_there_is_a_client_id() -> None:
    properties = bicep.read("modules/functions.bicep").declaration("resource", "signIn").properties()
    assert properties["requireAuthentication"] == "!empty(signInClientId)"
    assert properties["unauthenticatedClientAction"] == "Return401"
    assert properties["excludedPaths"] == "openPaths"
    assert MAIN.declaration("module", "app").properties()["signInClientId"] == "signInClientId"
    assert MAIN.declaration("module", "workersApp").properties()["signInClientId"] == "", (
        "operators have keys"
    )


def test_production_has_the_service_bus_that_private_networking_needs() -> None:
    given = {**MAIN.defaults(), **parameters("production.parameters.json")}
    assert (given["privateNetworking"], given["serviceBusSku"]) == (True, "Premium")


def test_azds_defaults_are_the_templates() -> None:
    for name, text in parameters("main.parameters.json").items():
        if name in MAIN.defaults() and name != "location":
            default = re.fullmatch(r"\$\{\w+(?:=(.*))?\}", text)
            assert default
            assert MAIN.defaults()[name] == (default[1] or ""), name
