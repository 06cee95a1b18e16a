"""Bicep and Kubernetes declare what runs in containers as it is: names, commands, probes and the leases' form."""

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from cosmos_changefeed.feed import ContainerIdentity
from cosmos_changefeed.lease import EpkRange, Lease, LeaseVersion
from cosmos_changefeed.lease_store import LeaseStore
from cosmos_outbox.cli.work import worker_parser
from cosmos_outbox.functions import function_app
from cosmos_outbox.settings.environment import load_feed
from cosmos_outbox.settings.transports import ServiceBus, StorageQueue
from cosmos_outbox.storagequeue.receiver import POISON
from cosmos_outbox.worker.probes import DRAIN_SECONDS
from infra.bootstrap import service as contact_service
from tests.deploy import bicep
from tests.deploy.bicep import MAIN
from tests.support.paths import ROOT

CONTAINERS = ROOT / "deploy" / "containers"
TRIGGER, SCALED = yaml.safe_load_all((CONTAINERS / "relay.scaledobject.yaml").read_text())
WORKERS: Mapping[str, str] = {"relayContainer": "relay", "subscriberContainer": "subscriber"}
APP = bicep.read("modules/container-app.bicep").declaration("resource", "app")


def found_by_keda(lease_id: str, document: Mapping[str, Any], trigger: Mapping[str, str]) -> bool:
    """As ``azure_cosmosdb_scaler.go`` of KEDA finds leases: processorName, the account's short name, a dot.

    Raises AssertionError for a lease of version 1 at which a whole poll of KEDA's would fail.
    """
    account = trigger["endpoint"].removeprefix("https://").partition(".")[0]
    if not lease_id.startswith(f"{trigger['processorName']}{account}.") or not document.get("LeaseToken"):
        return False
    if document["version"] == 1:
        bounds = document["FeedRange"]["Range"]
        assert bounds["min"] < bounds["max"] <= "FF"
        assert not {*bounds["min"], *bounds["max"]} - {*"0123456789ABCDEF"}
        assert (document["ContinuationToken"] or '"').startswith('"'), "an ETag, as .NET writes it"
    return True


def leases(prefix: str, host: str) -> LeaseStore:
    identity = ContainerIdentity(host, "db", "coll")
    return LeaseStore(None, monitored=identity, prefix=prefix)  # type: ignore[arg-type]  # only ids are asked for


def test_keda_finds_the_relays_leases_and_no_others() -> None:
    [trigger] = SCALED["spec"]["triggers"]
    metadata = trigger["metadata"]
    prefix, host = load_feed({}).lease_prefix, "account.documents.azure.com"
    ours = Lease(leases(prefix, host).lease_id("0"), "0", None, continuation='"7"')
    assert found_by_keda(ours.id, ours.to_document(), metadata)
    merged = Lease("", "05C1-FF", EpkRange("05C1", "FF"), version=LeaseVersion.EPK_RANGE, continuation='"7"')
    assert found_by_keda(leases(prefix, host).lease_id(merged.token), merged.to_document(), metadata)
    other = leases(f"other-{prefix}", host)
    assert not found_by_keda(other.lease_id("0"), ours.to_document(), metadata)
    assert not found_by_keda(leases(prefix, "account2.x").lease_id("0"), ours.to_document(), metadata)
    assert not found_by_keda(leases(prefix, host)._marker, {"id": "x"}, metadata)
    assert metadata["endpoint"] == metadata["endpoint"].lower(), "KEDA compares as it is written"


def test_the_names_that_keda_gets_are_those_of_the_deployment() -> None:
    [trigger] = SCALED["spec"]["triggers"]
    settings = bicep.evaluated(bicep.settings(host=False))
    scaler = {name: trigger["metadata"][name] for name in (
        "databaseId", "containerId", "leaseDatabaseId", "leaseContainerId", "processorName"
    )}  # fmt: skip
    assert scaler == {
        "databaseId": settings["COSMOS_DATABASE"],
        "containerId": settings["COSMOS_CONTAINER"],
        "leaseDatabaseId": settings["COSMOS_DATABASE"],
        "leaseContainerId": settings["COSMOS_LEASE_CONTAINER"],
        "processorName": settings["RELAY_LEASE_PREFIX"],
    }
    assert trigger["type"] == "azure-cosmosdb"
    assert trigger["metadata"]["changeFeedLagThreshold"] == settings["RELAY_MAX_ITEMS"]
    assert trigger["authenticationRef"]["name"] == TRIGGER["metadata"]["name"]
    assert TRIGGER["spec"] == {"podIdentity": {"provider": "azure-workload"}}, "no key"


def test_one_relay_is_always_there_also_when_keda_cannot_read() -> None:
    spec = SCALED["spec"]
    assert 1 <= spec["minReplicaCount"] <= spec["fallback"]["replicas"] <= spec["maxReplicaCount"]
    assert spec["fallback"]["behavior"] == "currentReplicasIfHigher", "an error takes no relay away"
    assert re.search(r"@minValue\(1\)\nparam minimumReplicas", bicep.read("modules/container-app.bicep").text)
    for each in ("relayContainer", "subscriberContainer", "apiContainer"):
        assert MAIN.declaration("module", each).properties()["minimumReplicas"] == "zoneRedundant ? 2 : 1"
    assert "type: 'cpu'" in APP.text, "a scaler that Container Apps has"


@pytest.mark.parametrize("name", WORKERS)
def test_a_worker_runs_with_its_command_and_answers_the_probes(name: str) -> None:
    given = MAIN.declaration("module", name).properties()
    command = bicep.Bicep(given["command"]).words()
    assert command[:4] == ["python", "-m", "cosmos_outbox", WORKERS[name]]
    arguments = worker_parser(WORKERS[name], "", "", "").parse_args(command[4:])
    assert (arguments.probes.host, str(arguments.probes.port)) == ("0.0.0.0", given["port"])
    assert (given["livenessPath"], given["readinessPath"], given["ingress"]) == (
        "/healthz",
        "/readyz",
        "false",
    )
    assert given["image"] == "workerImage"


def test_the_image_of_the_worker_runs_the_relay_as_the_deployment_does() -> None:
    text = (CONTAINERS / "worker.Dockerfile").read_text()
    command = json.loads(text.rpartition("CMD ")[2])
    assert (
        command == bicep.Bicep(MAIN.declaration("module", "relayContainer").properties()["command"]).words()
    )
    port = MAIN.declaration("module", "apiContainer").properties()["port"]
    assert f'"--port", "{port}"' in (CONTAINERS / "api.Dockerfile").read_text()


def test_the_job_ends_when_all_is_forwarded_and_is_given_no_second_try() -> None:
    job = bicep.read("modules/container-job.bicep").declaration("resource", "job").properties()
    command = job["command"].removeprefix("paused ? ['true'] : ")
    assert bicep.Bicep(command).words() == ["python", "-m", "cosmos_outbox", "relay", "--once"]
    assert (job["triggerType"], job["parallelism"], job["replicaRetryLimit"]) == ("Schedule", "1", "0")
    assert MAIN.declaration("module", "relayJob").properties()["schedule"] == "relaySchedule"


def test_a_container_has_the_time_that_a_stop_and_a_probe_take() -> None:
    given = APP.properties()
    assert int(given["terminationGracePeriodSeconds"]) >= DRAIN_SECONDS + 10
    assert given["timeoutSeconds"] == "6"
    page = (ROOT / "docs" / "operate" / "deploy.md").read_text()
    assert (
        f"Allow {given['terminationGracePeriodSeconds']} seconds between SIGTERM and SIGKILL, 6 for a probe"
        in page
    )


def test_a_container_replaces_the_functions_of_messages_and_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    triggered = {
        each.get_function_name()
        for each in function_app.app(contact_service).get_functions()
        if str(getattr(each.get_trigger(), "type", "")) in {"cosmosDBTrigger", "serviceBusTrigger"}
    }
    assert {*bicep.DECLARED["functions"]["triggered"]} == triggered
    disabled = MAIN.declaration("module", "workersApp").properties()["disabledFunctions"]
    assert "workersAreThere ? declared.functions.triggered :" in disabled, "until then they work"


@pytest.mark.parametrize("host", [True, False])
def test_over_storage_queues_the_settings_are_read_as_those_of_queues(*, host: bool) -> None:
    found = bicep.evaluated(bicep.settings("storagequeue", host=host), transport="storagequeue")
    made = contact_service.settings(found).transport
    assert isinstance(made, StorageQueue)
    assert made.queues == ("contact-directory",)
    assert made.connection.client_id == "made-up-STORAGEQUEUE__clientId"
    assert not [name for name in found if name.startswith("AzureWebJobs") and not host]


def test_each_queue_has_its_poison_queue() -> None:
    module = bicep.read("modules/storagequeues.bicep")
    assert module.declaration("resource", "queues").properties()["name"] == "name"
    assert module.declaration("resource", "poisonQueues").properties()["name"] == f"${{name}}{POISON}"
    assert "names: {" in module.text


def test_a_queue_of_service_bus_takes_the_place_of_topic_and_subscription() -> None:
    found = bicep.evaluated(bicep.settings(), serviceBusQueue="contact-queue")
    made = contact_service.settings(found).transport
    assert isinstance(made, ServiceBus)
    assert (made.topic, made.is_queue) == ("contact-queue", True)
    module = bicep.read("modules/servicebus.bicep")
    queue, topic, subscriber = (
        module.declaration("resource", name).properties() for name in ("queue", "topic", "subscribers")
    )
    only = {"parent", "name", "supportOrdering", "deadLetteringOnFilterEvaluationExceptions"}
    assert {k: v for k, v in queue.items() if k not in only} == {
        k: v for k, v in (topic | subscriber).items() if k not in only
    }
    conditions = dict(re.findall(r"^resource (\w+) '[^']+' = (.*)$", module.text, re.MULTILINE))
    assert "if (!isTopic)" in conditions["queueSenders"]
    assert "if (!isTopic)" in conditions["queueReceivers"]
    without = {name for name, condition in conditions.items() if "isTopic" not in condition}
    assert without == {"namespace", "preflightAccess", "lock", "diagnostics"}, (
        "all else belongs to one of the two"
    )


def test_without_the_parameters_nothing_of_it_is_made() -> None:
    defaults = MAIN.defaults()
    assert (defaults["hosting"], defaults["transport"], defaults["serviceBusQueue"]) == (
        "functions",
        "servicebus",
        "",
    )
    for module, condition in {
        "containers": "inContainers",
        "relayContainer": "workersAreThere && empty(relaySchedule)",
        "relayJob": "workersAreThere && !empty(relaySchedule)",
        "subscriberContainer": "workersAreThere",
        "apiContainer": "inContainers && !empty(apiImage)",
        "storageQueues": "!overServiceBus",
        "serviceBus": "overServiceBus",
        "app": "inFunctions",
        "workersApp": "inFunctions",
        "relayIdentity": "workersAreThere",
        "subscriberIdentity": "workersAreThere",
    }.items():
        assert f"' = if ({condition}) {{" in MAIN.declaration("module", module).text, module


def test_every_image_is_built_by_ci_from_what_is_there() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    built = {
        word
        for step in jobs["images"]["steps"]
        for word in step.get("run", "").split()
        if word.endswith("Dockerfile")
    }
    files = sorted(CONTAINERS.glob("*.Dockerfile"))
    assert built == {str(each.relative_to(ROOT)) for each in files}
    for each in files:
        sources = re.findall(r"^COPY (\S+) ", each.read_text(), re.MULTILINE)
        assert sources
        assert all((ROOT / source).exists() for source in sources), each
        assert "USER nobody" in each.read_text()
