"""The code is uploaded by who deploys: no app can write it."""

import os
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.deploy import bicep
from tests.deploy.bicep import MAIN
from tools.publish import APPS, BLOB, publish

AZ = """#!/bin/sh
echo "$*" >> "{log}"
case "$*" in
    "storage blob upload"*)
        [ -e "{refusals}/1" ] && rm "{refusals}/1" && exit 1
        while [ $# -gt 0 ]; do
            case $1 in --container-name) to=$2;; --file) cp "$2" "{log}.$to.zip";; esac
            shift
        done;;
    "functionapp show"*) echo /subscriptions/s/app;;
esac
exit 0
"""
DEPLOYED = {
    "AZURE_RESOURCE_GROUP": "rg",
    "PACKAGES_ACCOUNT": "stp1",
    "FUNCTION_APP_NAME": "func-1",
    "WORKERS_APP_NAME": "func-workers-1",
}


@pytest.fixture
def az(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """An Azure CLI that takes all, but for an upload while there is a file ``refusals/1``; what it was asked."""
    program, log = tmp_path / "bin" / "az", tmp_path / "log"
    (tmp_path / "refusals").mkdir()
    program.parent.mkdir()
    program.write_text(AZ.format(log=log, refusals=tmp_path / "refusals"))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return lambda: log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "package" / "cosmos_outbox").mkdir(parents=True)
    (tmp_path / "package" / "host.json").write_text("{}")
    (tmp_path / "package" / "cosmos_outbox" / "__init__.py").touch()
    return tmp_path / "package"


def test_both_apps_start_with_the_package(az: Callable[[], list[str]], package: Path, tmp_path: Path) -> None:
    assert publish(package, DEPLOYED) == 0
    commands = az()
    uploads = [command for command in commands if command.startswith("storage blob upload")]
    assert len(uploads) == 2
    assert all(
        "--auth-mode login --account-name stp1" in each and f"--name {BLOB}" in each for each in uploads
    )
    for container in APPS.values():
        with zipfile.ZipFile(tmp_path / f"log.{container}.zip") as found:
            assert {"host.json", "cosmos_outbox/__init__.py"} <= set(found.namelist()), "at the root"
    for app in ("func-1", "func-workers-1"):
        assert commands.count(f"functionapp restart --name {app} --resource-group rg") == 1
    synced = "rest --method post --url /subscriptions/s/app/syncfunctiontriggers"
    assert sum(command.startswith(synced) for command in commands) == 2, "else nothing wakes a new trigger"


def test_an_upload_is_tried_again_until_the_role_works(
    az: Callable[[], list[str]], package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "refusals" / "1").touch()
    assert publish(package, DEPLOYED, pauses=[0]) == 0
    assert sum(command.startswith("storage blob upload") for command in az()) == 3
    assert "a new role takes minutes to work" in capsys.readouterr().out


def test_an_upload_that_is_refused_to_the_end_restarts_nothing(
    az: Callable[[], list[str]], package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "refusals" / "1").touch()
    assert publish(package, DEPLOYED, pauses=[]) == 1
    assert not [command for command in az() if "restart" in command]
    assert capsys.readouterr().err.startswith("publish: ")


def test_a_missing_output_is_named(
    az: Callable[[], list[str]], package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert publish(package, {**DEPLOYED, "PACKAGES_ACCOUNT": ""}) == 2
    assert "set PACKAGES_ACCOUNT" in capsys.readouterr().err
    assert az() == []


def test_the_containers_and_outputs_are_those_of_the_template() -> None:
    packages = bicep.read("modules/packages.bicep")
    for output, container in APPS.items():
        assert packages.declaration("resource", container).properties()["name"] == container
        assert f"{container}Url" in packages.names("output")
        assert output in MAIN.names("output")
    assert "PACKAGES_ACCOUNT" in MAIN.names("output")


ROLES = {
    "ba92f5b4-2d11-453d-a403-e96b0029c9fe": "Storage Blob Data Contributor",
    "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1": "Storage Blob Data Reader",
}
"""https://learn.microsoft.com/azure/role-based-access-control/built-in-roles/storage"""


def test_an_app_reads_its_code_and_who_deploys_alone_writes_it() -> None:
    packages = bicep.read("modules/packages.bicep")
    role = {name: ROLES[packages.declaration("var", name).words()[0]] for name in packages.names("var")}
    rights = {}
    for name in packages.names("resource"):
        of = packages.declaration("resource", name)
        if "roleAssignments" in of.text.partition("\n")[0]:
            given = of.properties()
            [which] = [each for each in role if f", {each})" in given["roleDefinitionId"]]
            rights[given["principalId"]] = role[which], given["scope"]
    assert rights == {
        "apiPrincipalId": ("Storage Blob Data Reader", "api"),
        "workersPrincipalId": ("Storage Blob Data Reader", "workers"),
        "publisherPrincipalId": ("Storage Blob Data Contributor", "account"),
    }
    given = MAIN.declaration("module", "packages").properties()
    assert given["publisherPrincipalId"] == "deployer().objectId"
    assert given["name"] not in {
        MAIN.declaration("module", each).properties()["name"] for each in ("storage", "workersStorage")
    }, "a Functions host owns the whole account in which its keys are"


def test_each_app_has_an_identity_and_a_host_storage_of_its_own() -> None:
    app, workers = (MAIN.declaration("module", each).properties() for each in ("app", "workersApp"))
    assert (app["identityId"], workers["identityId"]) == (
        "apiIdentity.outputs.id",
        "workersIdentity!.outputs.id",
    )
    assert (app["packageContainerUrl"], workers["packageContainerUrl"]) == (
        "packages!.outputs.apiUrl",
        "packages!.outputs.workersUrl",
    )
    storage, other = (MAIN.declaration("module", each).properties() for each in ("storage", "workersStorage"))
    assert storage["hosts"] == "[apiIdentity.outputs.principalId]"
    assert other["hosts"] == "workers"
    text = MAIN.declaration("var", "hostSettings").text
    hosts = re.findall(r"account: inFunctions \? (\w+)!\..*?clientId: (?:inFunctions \? )?(\w+)!?\.", text)
    assert hosts == [("storage", "apiIdentity"), ("workersStorage", "workersIdentity")]
    for container, who in (("relay", "relay"), ("subscriber", "subscriber"), ("api", "api")):
        given = MAIN.declaration("module", f"{container}Container").properties()
        assert given["identityId"].replace("!", "") == f"{who}Identity.outputs.id"
        assert given["appSettings"] == f"{who}Settings"
    assert MAIN.declaration("module", "relayJob").properties()["appSettings"] == "relaySettings"


def test_only_the_relay_sends_and_only_the_subscriber_receives() -> None:
    senders, receivers = (MAIN.declaration("var", each).text for each in ("senders", "receivers"))
    assert "apiIdentity" not in senders + receivers
    assert "relayIdentity" in senders
    assert "relayIdentity" not in receivers
    assert "subscriberIdentity" in receivers
    assert "subscriberIdentity" not in senders
    for transport in ("serviceBus", "storageQueues"):
        given = MAIN.declaration("module", transport).properties()
        assert (given["senders"], given["receivers"]) == ("senders", "receivers")
    module = bicep.read("modules/servicebus.bicep")
    for name, principals, role, scope in (
        ("topicSenders", "senders", "dataSender", "topic"),
        ("queueSenders", "senders", "dataSender", "queue"),
        ("queueReceivers", "receivers", "dataReceiver", "queue"),
    ):
        made = module.declaration("resource", name)
        assert f"[for principalId in {principals}: " in made.text
        assert made.properties()["scope"] == scope
        assert f"'Microsoft.Authorization/roleDefinitions', {role})" in made.text
    receiving = module.declaration("resource", "subscriptionReceivers").properties()
    assert receiving["scope"] == "subscribers[index % length(subscriptionNames)]"
    assert receiving["principalId"] == "receivers[index / length(subscriptionNames)]"
    assert receiving["roleDefinitionId"].endswith("dataReceiver)")
