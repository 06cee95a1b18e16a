"""The Bicep files fit together and declare what the promises rest on."""

import ast
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from infra.preflight.cosmos_rules import judge, needed
from infra.preflight.report import Status
from infra.settings import load
from tests.deploy import bicep
from tests.support.processes import ROOT

DEPLOY = ROOT / "deploy"
FILES = sorted(DEPLOY.rglob("*.bicep"))
MAIN = bicep.read(DEPLOY / "main.bicep")

API_VERSIONS = {
    "Microsoft.Authorization/roleAssignments": "2022-04-01",
    "Microsoft.DocumentDB/databaseAccounts": "2024-11-15",
    "Microsoft.DocumentDB/databaseAccounts/sqlDatabases": "2024-11-15",
    "Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers": "2024-11-15",
    "Microsoft.DocumentDB/databaseAccounts/sqlRoleAssignments": "2024-11-15",
    "Microsoft.Insights/components": "2020-02-02",
    "Microsoft.ManagedIdentity/userAssignedIdentities": "2023-01-31",
    "Microsoft.Network/privateDnsZones": "2024-06-01",
    "Microsoft.Network/privateDnsZones/virtualNetworkLinks": "2024-06-01",
    "Microsoft.Network/privateEndpoints": "2024-05-01",
    "Microsoft.Network/privateEndpoints/privateDnsZoneGroups": "2024-05-01",
    "Microsoft.Network/virtualNetworks": "2024-05-01",
    "Microsoft.OperationalInsights/workspaces": "2023-09-01",
    "Microsoft.ServiceBus/namespaces": "2024-01-01",
    "Microsoft.ServiceBus/namespaces/topics": "2024-01-01",
    "Microsoft.ServiceBus/namespaces/topics/subscriptions": "2024-01-01",
    "Microsoft.Storage/storageAccounts": "2024-01-01",
    "Microsoft.Storage/storageAccounts/blobServices": "2024-01-01",
    "Microsoft.Storage/storageAccounts/blobServices/containers": "2024-01-01",
    "Microsoft.Web/serverfarms": "2024-04-01",
    "Microsoft.Web/sites": "2024-04-01",
    "Microsoft.Web/sites/basicPublishingCredentialsPolicies": "2024-04-01",
}
"""As they are in https://github.com/Azure/bicep-types-az and Microsoft's own samples: none is a preview."""


def module(name: str) -> bicep.Bicep:
    return bicep.read(DEPLOY / "modules" / f"{name}.bicep")


def resource(file: str, name: str) -> bicep.Resource:
    return module(file).resources()[name]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_names_only_versions_that_are_there_and_nothing_that_it_does_not_use(file: Any) -> None:
    read = bicep.read(file)
    for found in read.resources().values():
        assert API_VERSIONS[found.type] == found.api_version
    for name in (*read.names("param"), *read.names("var")):
        assert len(re.findall(rf"\b{name}\b", read.text)) > 1, f"{name} is declared and not used"
    declared = [name for kind in ("param", "var", "module", "resource") for name in read.names(kind)]
    assert len(declared) == len(set(declared))


def test_every_module_is_there_and_gets_what_it_takes() -> None:
    uses = MAIN.modules()
    assert {use.file for use in uses.values()} == set(FILES) - {MAIN.file}
    for name, use in uses.items():
        taken = bicep.read(use.file)
        assert use.given <= set(taken.names("param")), name
        assert taken.required() <= use.given, name


def test_every_output_that_is_used_is_one() -> None:
    used = re.findall(r"\b(\w+)!?\.outputs\.(\w+)", MAIN.text)
    assert len(used) > 20
    uses = MAIN.modules()
    for name, output in used:
        assert output in bicep.read(uses[name].file).names("output"), f"{name}.outputs.{output}"


def test_a_bracket_or_a_string_that_does_not_close_is_found() -> None:
    text = MAIN.file.read_text()
    for broken in (
        text.replace("}", "", 1),
        text.replace("targetScope = 'resourceGroup'", "targetScope = 'r"),
    ):
        with pytest.raises(bicep.Broken):
            bicep.without_comments(broken)


def container(name: str) -> bicep.Resource:
    return resource("cosmos", name)


def paths(body: str, kind: str) -> tuple[str, ...]:
    inside = body.partition(f"{kind}: [")[2].partition("]")[0]
    return tuple(re.findall(r"path: '([^']+)'", inside))


QUERIED = {
    "contacts": ("/type/?", "/data/deleted/?"),
    "leases": (),
    "parked": ("/type/?", "/contactId/?", "/position/?", "/parkedAt/?"),
}


@pytest.mark.parametrize("name", QUERIED)
def test_a_container_has_ttl_and_indexes_what_is_queried_and_nothing_else(name: str) -> None:
    declared = container(name)
    assert declared.has("defaultTtl: -1")
    assert declared.has("paths: ['/id']" if name == "leases" else "paths: ['/partitionKey']")
    assert paths(declared.body, "includedPaths") == QUERIED[name]
    assert paths(declared.body, "excludedPaths") == ("/*",)
    assert declared.has("indexingMode: 'consistent'")


def test_preflight_finds_nothing_wrong_with_the_declared_containers() -> None:
    from infra.cosmos.inspection import ContainerState, IndexingPolicy  # noqa: PLC0415 - used by this test alone

    names = {"contacts": "containerName", "leases": "leaseContainerName", "parked": "parkedContainerName"}
    settings = load({"COSMOS": "x", "SERVICEBUS": "x"})
    by_name = {MAIN.value(variable): name for name, variable in names.items()}
    for need in needed(settings):
        body = container(by_name[need.name]).body
        [key] = re.findall(r"paths: \['([^']+)'\]", body)
        indexing = IndexingPolicy(True, paths(body, "includedPaths"), paths(body, "excludedPaths"))
        state = ContainerState(partition_key=(key,), default_ttl=-1, indexing=indexing)
        assert {finding.status for finding in judge(need, state, "contacts")} == {Status.OK}


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("infra/cosmos/repository.py", "contacts"),
        ("infra/cosmos/parking_lot.py", "parked"),
        ("changefeed/lease_store.py", "leases"),
    ],
)
def test_no_query_reads_what_is_not_indexed(source: str, name: str) -> None:
    tree = ast.parse((ROOT / source).read_text())
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    queries = [text for text in texts if isinstance(text, str) and text.startswith("SELECT ")]
    assert queries
    used = {
        "/" + path.replace(".", "/") + "/?" for text in queries for path in re.findall(r"\bc\.([\w.]+)", text)
    }
    assert used - {"/id/?"} == set(QUERIED[name])


def test_cosmos_takes_no_key_and_no_old_tls() -> None:
    account = resource("cosmos", "account")
    assert account.has("disableLocalAuth: true")
    assert account.has("minimalTlsVersion: 'Tls12'")
    assert account.has("defaultConsistencyLevel: 'Session'")


def test_the_topic_drops_duplicates_is_not_partitioned_and_stays() -> None:
    topic, subscription = resource("servicebus", "topic"), resource("servicebus", "subscriber")
    assert topic.has("requiresDuplicateDetection: true")
    assert topic.has("duplicateDetectionHistoryTimeWindow: duplicateDetectionWindow")
    assert topic.has("enablePartitioning: false")
    assert subscription.has("requiresSession: true")
    assert subscription.has("maxDeliveryCount: maxDeliveryCount")
    assert subscription.has("deadLetteringOnMessageExpiration: true")
    assert "autoDeleteOnIdle" not in module("servicebus").text
    assert MAIN.defaults()["duplicateDetectionWindow"] == "'PT1H'"
    namespace = resource("servicebus", "namespace")
    assert namespace.has("disableLocalAuth: true")
    assert namespace.has("minimumTlsVersion: '1.2'")


def test_storage_and_telemetry_take_identities_only() -> None:
    account = resource("storage", "account")
    for line in (
        "allowSharedKeyAccess: false",
        "allowBlobPublicAccess: false",
        "supportsHttpsTrafficOnly: true",
        "minimumTlsVersion: 'TLS1_2'",
    ):
        assert account.has(line), line
    assert resource("monitoring", "insights").has("DisableLocalAuth: true")


def test_the_function_app_is_python_on_flex_consumption_over_https() -> None:
    site = resource("functions", "site")
    assert site.has("httpsOnly: true")
    assert site.has("minTlsVersion: '1.2'")
    assert site.has("name: 'python'")
    assert site.has("type: 'UserAssignedIdentity'")
    assert resource("functions", "plan").has("name: 'FC1'")
    assert resource("functions", "noPasswords").has("allow: false")


def test_the_identity_has_just_the_roles_that_it_needs_each_where_it_needs_it() -> None:
    """Role ids: https://learn.microsoft.com/azure/role-based-access-control/built-in-roles"""
    expected = {
        ("servicebus", "sender"): ("dataSender", "69a216fc-b8fb-44d8-bc22-1f3c2cd27a39", "topic"),
        ("servicebus", "receiver"): ("dataReceiver", "4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0", "subscriber"),
        ("storage", "blobOwner"): ("storageBlobDataOwner", "b7e6dc6d-f1e8-4753-8033-0f276bb0955b", "account"),
        ("monitoring", "publisher"): ("monitoringMetricsPublisher", "3913510d-42f4-4e42-8a64-420c390055eb", "insights"),
    }  # fmt: skip
    found = {
        (file.stem, name)
        for file in FILES
        for name, declared in bicep.read(file).resources().items()
        if declared.type == "Microsoft.Authorization/roleAssignments"
    }
    assert found == set(expected)
    for (file, name), (variable, role, scope) in expected.items():
        assert module(file).value(variable) == role
        assert resource(file, name).has(f"scope: {scope}")
        definition = f"subscriptionResourceId('Microsoft.Authorization/roleDefinitions', {variable})"
        assert resource(file, name).has(f"roleDefinitionId: {definition}")
    access = resource("cosmos", "dataAccess")
    assert module("cosmos").value("dataContributor") == "00000000-0000-0000-0000-000000000002"
    assert access.has("roleDefinitionId: '${account.id}/sqlRoleDefinitions/${dataContributor}'")
    assert access.has("scope: '${account.id}/dbs/${database.name}'")


def test_two_apps_share_the_functions_out_without_rest() -> None:
    tree = ast.parse((ROOT / "function_app.py").read_text())
    functions = {
        node.name for node in tree.body if isinstance(node, ast.AsyncFunctionDef) and node.decorator_list
    }
    relay, others = set(MAIN.words("relayFunctions")), set(MAIN.words("otherFunctions"))
    assert relay == {"relay"}
    assert relay | others == functions
    assert not relay & others
    assert "name: 'AzureWebJobs.${function}.Disabled'" in module("functions").text


def parameters(name: str) -> Mapping[str, Any]:
    content = json.loads((DEPLOY / name).read_text())["parameters"]
    return {key: each["value"] for key, each in content.items()}


@pytest.mark.parametrize("name", ["main.parameters.json", "production.parameters.json"])
def test_a_parameters_file_gives_parameters_that_are_there_and_all_that_have_no_default(name: str) -> None:
    given = set(parameters(name))
    assert given <= set(MAIN.names("param"))
    assert MAIN.required() <= given


def test_production_meets_the_conditions_between_parameters() -> None:
    given = parameters("production.parameters.json")
    assert given["privateNetworking"] is True
    assert given["serviceBusSku"] == "Premium"


def test_azds_defaults_are_the_templates() -> None:
    for name, text in parameters("main.parameters.json").items():
        if default := re.fullmatch(r"\$\{\w+=(.*)\}", text):
            assert MAIN.defaults()[name].strip("'") == default[1], name
