"""The Bicep files fit Azure's published types, and a fault in them is found without a compiler and without Azure."""

import json
import shutil
from pathlib import Path

import pytest

from tests.deploy.bicep_check import faults
from tests.deploy.bicep_kinds import Types
from tests.support.paths import ROOT
from tools import bicep_types

DEPLOY = ROOT / "deploy"
TYPES = Types.load()


def test_every_resource_property_and_value_is_one_of_azures_types_and_every_name_is_declared() -> None:
    assert faults(DEPLOY, TYPES) == []


def test_the_types_are_those_of_the_resources_and_no_others() -> None:
    assert set(TYPES.resources) == bicep_types.declared(DEPLOY)
    data = json.loads(bicep_types.DATA.read_text())
    assert (data["source"], data["licence"][:3]) == (bicep_types.SOURCE, "MIT")
    assert bicep_types.DATA.stat().st_size < 100_000


@pytest.mark.parametrize(
    ("file", "before", "after", "told"),
    [
        pytest.param(
            "modules/functions.bicep",
            "    httpsOnly: true\n",
            "    httpOnly: true\n",
            ["site.properties: no property httpOnly"],
            id="an unknown property",
        ),
        pytest.param(
            "modules/functions.bicep",
            "    httpsOnly: true\n",
            "    httpsonly: true\n",
            ["site.properties: no property httpsonly (it is httpsOnly)"],
            id="another case",
        ),
        pytest.param(
            "modules/cosmos.bicep",
            "{ path: '/position/?' }",
            "{ paths: '/position/?' }",
            ["parked.properties.resource.indexingPolicy.includedPaths[3]: no property paths"],
            id="an unknown property in an array",
        ),
        pytest.param(
            "modules/cosmos.bicep",
            "name => { path: '/search/${name}/?' }",
            "name => { where: '/search/${name}/?' }",
            ["directory.properties.resource.indexingPolicy.includedPaths[]: no property where"],
            id="an unknown property in a lambda",
        ),
        pytest.param(
            "modules/servicebus.bicep",
            "supportOrdering: true",
            "supportOrdering: 'true'",
            ["topic.properties.supportOrdering: 'true' is string, and bool is wanted"],
            id="a text for a flag",
        ),
        pytest.param(
            "modules/functions.bicep",
            "param maximumInstanceCount int",
            "param maximumInstanceCount string",
            [
                (
                    "site.properties.functionAppConfig.scaleAndConcurrency.maximumInstanceCount: "
                    "maximumInstanceCount is string, and int is wanted"
                ),
                "app.maximumInstanceCount: maximumInstanceCount is int, and string is wanted",
                "relay.maximumInstanceCount: maximumInstanceCount is int, and string is wanted",
            ],
            id="a parameter of another kind",
        ),
        pytest.param(
            "modules/functions.bicep",
            "zoneRedundant: zoneRedundant",
            "zoneRedundant: !empty(subnetId) ? 1 : zoneRedundant",
            ["plan.properties.zoneRedundant: 1 is int, and bool is wanted"],
            id="one side of a condition",
        ),
        pytest.param(
            "modules/cosmos.bicep",
            "defaultConsistencyLevel: 'Session'",
            "defaultConsistencyLevel: 'Sessions'",
            [
                (
                    "account.properties.consistencyPolicy.defaultConsistencyLevel: Sessions is none of "
                    "Eventual, Session, BoundedStaleness, Strong, ConsistentPrefix"
                ),
            ],
            id="a value that is not listed",
        ),
        pytest.param(
            "modules/cosmos.bicep",
            "'Continuous7Days', 'Continuous30Days'])",
            "'Continuous7Days', 'Continuous30Days', 'Continuous90Days'])",
            [
                (
                    "account.properties.backupPolicy.continuousModeProperties.tier: Continuous90Days is none of "
                    "Continuous7Days, Continuous30Days"
                ),
            ],
            id="a value that a parameter may have and the type may not",
        ),
        pytest.param(
            "modules/cosmos.bicep",
            "    databaseAccountOfferType: 'Standard'\n",
            "",
            ["account.properties: databaseAccountOfferType is missing"],
            id="a required property",
        ),
        pytest.param(
            "modules/cosmos.bicep",
            "  kind: 'GlobalDocumentDB'\n",
            "  kind: 'GlobalDocumentDB'\n  sku: {}\n",
            ["account: no property sku"],
            id="a property that the type does not have at that place",
        ),
        pytest.param(
            "modules/functions.bicep",
            "    httpsOnly: true\n",
            "    httpsOnly: true\n    state: 'Running'\n",
            ["site.properties.state: can only be read"],
            id="a property that can only be read",
        ),
        pytest.param(
            "modules/functions.bicep",
            "serverFarmId: plan.id",
            "serverFarmId: plans.id",
            ["site: plans is not declared"],
            id="an undeclared name",
        ),
        pytest.param(
            "modules/functions.bicep",
            "'AzureWebJobs.${function}.Disabled'",
            "'AzureWebJobs.${functions}.Disabled'",
            ["disabledSettings: functions is not declared"],
            id="an undeclared name in a text",
        ),
        pytest.param(
            "modules/functions.bicep",
            "concat(namedSettings",
            "concatenate(namedSettings",
            ["site: there is no function concatenate"],
            id="an unknown function",
        ),
        pytest.param(
            "modules/functions.bicep",
            "param zoneRedundant bool\n",
            "param zoneRedundant bool\nparam spare string = ''\n",
            ["spare is declared and not used"],
            id="a parameter that nobody uses",
        ),
        pytest.param(
            "main.bicep",
            "    principalId: identity.outputs.principalId\n    sku: storageSku\n",
            "    principalId: identity.outputs.principal\n    sku: storageSku\n",
            ["identity has no output principal"],
            id="an output that the module does not have",
        ),
        pytest.param(
            "main.bicep",
            "    workspaceId: monitoring.outputs.workspaceId\n    insightsId",
            "    workspace: monitoring.outputs.workspaceId\n    insightsId",
            [
                "alerts: alerts.bicep has no parameter workspace",
                "alerts: parameter workspaceId of alerts.bicep is missing",
            ],
            id="another parameter than the module's",
        ),
        pytest.param(
            "main.bicep",
            "    capacity: cosmosCapacity\n",
            "    capacity: 'provisioned'\n",
            [
                "cosmosCapacity is declared and not used",
                "cosmos.capacity: provisioned is none of serverless, autoscale",
            ],
            id="a value that the module does not allow",
        ),
        pytest.param(
            "modules/identity.bicep",
            "userAssignedIdentities@2023-01-31",
            "userAssignedIdentities@2022-01-31",
            [
                (
                    "identity: the tests do not have the type "
                    "Microsoft.ManagedIdentity/userAssignedIdentities@2022-01-31: run tools.bicep_types"
                ),
            ],
            id="a version whose type is not here",
        ),
        pytest.param(
            "modules/identity.bicep",
            "  tags: tags\n}",
            "  tags: tags\n",
            None,
            id="no Bicep at all",
        ),
    ],
)
def test_a_fault_is_told_with_its_place(
    file: str, before: str, after: str, told: list[str] | None, tmp_path: Path
) -> None:
    copy = tmp_path / "deploy"
    shutil.copytree(DEPLOY, copy)
    text = (copy / file).read_text()
    assert text.count(before) == 1, "the fault is planted at one place"
    (copy / file).write_text(text.replace(before, after))
    found = [fault.partition(": ")[2] for fault in faults(copy, TYPES)]
    if told is None:
        assert len(found) == 1
        assert "this is no Bicep" in found[0]
    else:
        assert sorted(found) == sorted(told)


def test_types_are_extracted_as_they_are_published(tmp_path: Path) -> None:
    """The form of Azure/bicep-types-az: references by number, descriptions, types that are not wanted."""
    published = [
        {"$type": "StringType", "minLength": 3},
        {"$type": "StringLiteralType", "value": "On"},
        {"$type": "StringLiteralType", "value": "Off"},
        {"$type": "UnionType", "elements": [{"$ref": "#/1"}, {"$ref": "#/2"}, {"$ref": "#/0"}]},
        {
            "$type": "ObjectType",
            "name": "Its/things",
            "properties": {
                "name": {"type": {"$ref": "#/0"}, "flags": 9, "description": "long"},
                "id": {"type": {"$ref": "#/0"}, "flags": 10, "description": "long"},
                "mode": {"type": {"$ref": "#/3"}, "flags": 0},
                "inner": {"type": {"$ref": "#/4"}, "flags": 0},
            },
        },
        {"$type": "ResourceType", "name": "Its/things@2024-01-01", "body": {"$ref": "#/4"}},
        {"$type": "ResourceType", "name": "Its/others@2024-01-01", "body": {"$ref": "#/4"}},
    ]
    extract = bicep_types.Extract()
    extract.take(published, {"Its/things@2024-01-01"})
    types = Types(extract.resources, extract.nodes)
    (tmp_path / "main.bicep").write_text(
        "resource thing 'Its/things@2024-01-01' = { name: 'x', mode: 'Up', inner: { name: 'four' } }\n"
    )
    assert faults(tmp_path, types) == [
        "main.bicep: thing.name: the length of x is out of range",
        "main.bicep: thing.mode: Up is none of On, Off",
    ]
    assert bicep_types.main([str(tmp_path)], tmp_path / "data.json") == 1, "it does not have our resources"
