"""Each way to deploy it wrong that people are known to take is caught, by its own line, and nothing else is."""

import asyncio
import base64
import json
import socket
import time
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest
from azure.core.credentials import AccessToken
from azure.cosmos.aio import CosmosClient

from application.ports import utc_now
from devstack import provision
from devstack.settings import read_settings
from infra.credentials import Credential
from infra.preflight.__main__ import main
from infra.preflight.checks import Plan, check
from infra.settings import load
from tests.preflight.deployment import ContainerOf, Deployment, deployed, indexed
from tests.support.azure import cosmos_connection, servicebus_connection
from tests.support.processes import ROOT, Service, running

RIGHT = Deployment()
SERVICEBUS_ON_LOOPBACK = (
    "Endpoint=sb://127.0.0.1;SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator=true;"
)
COVERED = (
    "duplicates are dropped for 1 h, an outage of 1 h included; events are kept for 10 d, "
    "so a later repetition is the subscriber's to drop, by its id or sequence"
)


async def preflight(
    environment: dict[str, str], capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, list[str]]:
    """The exit code, and the lines that are not "ok"."""
    code = await asyncio.to_thread(main, list(arguments), environment)
    *lines, total = capsys.readouterr().out.splitlines()
    complaints = [line for line in lines if not line.startswith("ok ")]
    assert total.startswith(f"{len(lines) - len(complaints)} ok")
    return code, complaints


async def test_a_right_deployment_passes_and_every_promise_has_its_line(
    cosmos_server: Service, servicebus_server: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = await deployed(RIGHT, cosmos_server, servicebus_server)
    code = await asyncio.to_thread(main, ["--survive", "1h"], environment)
    topic, subscription = f"topic {environment['SERVICEBUS_TOPIC']}", "subscription contact-directory"
    assert capsys.readouterr().out.splitlines() == [
        "ok       EVENT_TTL_SECONDS: events are kept for 10 d, an outage of 1 h is shorter",
        "ok       container contacts: partition key /partitionKey",
        "ok       container contacts: nothing expires unless it says so",
        "ok       container contacts: indexed: /type/?, /data/deleted/?",
        "ok       container leases: partition key /id",
        "ok       container leases: nothing expires unless it says so",
        "ok       container leases: indexed: nothing but the id",
        "ok       container parked-events: partition key /partitionKey",
        "ok       container parked-events: nothing expires unless it says so",
        "ok       container parked-events: indexed: /type/?, /contactId/?, /position/?, /parkedAt/?",
        "ok       clock: this machine's is within 5 min of the account's",
        f"ok       {topic}: {COVERED}",
        f"ok       {topic}: is not partitioned",
        f"ok       {topic}: is not deleted when idle",
        f"ok       {subscription}: sessions: one contact's events come in order",
        f"ok       {subscription}: a message is a dead letter after 10 deliveries",
        f"ok       {subscription}: a message that expires is kept as a dead letter",
        f"ok       {subscription}: is not deleted when idle",
        "18 ok",
    ]
    assert code == 0


async def test_the_local_stack_passes_for_an_outage_as_long_as_its_window(
    cosmos_server: Service, servicebus_server: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = {
        **json.loads((ROOT / "local.settings.sample.json").read_text())["Values"],
        "COSMOS": cosmos_connection(cosmos_server),
        "SERVICEBUS": servicebus_connection(servicebus_server),
        "SERVICEBUS_ADMIN_PORT": servicebus_server.addresses[1].rpartition(":")[2],
    }
    names = read_settings(environment).names
    await provision.cosmos(environment["COSMOS"], names)
    await provision.servicebus(servicebus_connection(servicebus_server, admin=True), names)
    code, complaints = await preflight(environment, capsys, "--survive", "5m")
    assert code == 0, complaints


WRONG_CONTAINERS = {
    "contacts without TTL": (
        Deployment(contacts=ContainerOf(default_ttl=None)),
        ["wrong    container contacts: TTL is off", "warning  container contacts: everything is indexed"],
    ),
    "parked events without TTL": (
        Deployment(parked=ContainerOf(default_ttl=None)),
        ["wrong    container parked-events: TTL is off", "warning  container parked-events: everything"],
    ),
    "leases without TTL": (
        Deployment(leases=ContainerOf("/id", None, indexed())),
        ["warning  container leases: TTL is off, so the lock of an instance that crashes"],
    ),
    "leases that expire": (
        Deployment(leases=ContainerOf("/id", 86_400, indexed())),
        ["wrong    container leases: what does not say how long it lives is removed 1 d after"],
    ),
    "contacts with a default TTL": (
        Deployment(contacts=ContainerOf(default_ttl=600, indexing=indexed("/type/?", "/data/*"))),
        ["warning  container contacts: what does not say how long it lives is removed 10 min after"],
    ),
    "contacts by another key": (
        Deployment(contacts=ContainerOf("/id", indexing=indexed("/type/?", "/data/deleted/?"))),
        [
            "wrong    container contacts: the partition key is /id, not /partitionKey. Fix: it cannot be changed"
        ],
    ),
    "leases by another key": (
        Deployment(leases=ContainerOf("/partitionKey", indexing=indexed())),
        ["wrong    container leases: the partition key is /partitionKey, not /id"],
    ),
    "no leases, nothing parked": (
        Deployment(leases=None, parked=None),
        [
            "wrong    container leases: does not exist in the database",
            "wrong    container parked-events: does not exist in the database",
        ],
    ),
    "a query without its index": (
        Deployment(parked=ContainerOf(indexing=indexed("/type/?", "/position/?"))),
        ["wrong    container parked-events: /contactId/?, /parkedAt/? is queried and not indexed"],
    ),
    "no index at all": (
        Deployment(contacts=ContainerOf(indexing={"indexingMode": "none"})),
        ["wrong    container contacts: nothing is indexed"],
    ),
}
"""The line that starts with "wrong" must be there, and so must each warning, in this order."""


@pytest.mark.parametrize("case", WRONG_CONTAINERS)
async def test_a_wrong_container_is_named(
    case: str, cosmos_server: Service, servicebus_server: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    deployment, expected = WRONG_CONTAINERS[case]
    environment = await deployed(deployment, cosmos_server, servicebus_server)
    code, complaints = await preflight(environment, capsys)
    assert len(complaints) == len(expected), complaints
    for complaint, start in zip(complaints, expected, strict=True):
        assert complaint.startswith(start)
        assert ". Fix: " in complaint
    assert code == (1 if any(line.startswith("wrong") for line in expected) else 0)


DAYS_WITHOUT_USE = {"auto_delete_on_idle": timedelta(days=14)}
WRONG_ENTITIES = {
    "no topic": (Deployment(topic=None), ["wrong    topic T: does not exist. Fix: create it"]),
    "no subscription": (
        Deployment(subscription=None),
        ["wrong    subscription contact-directory: does not exist in the topic"],
    ),
    "no duplicate detection": (
        Deployment(topic={"requires_duplicate_detection": False}),
        ["wrong    topic T: duplicate detection is off"],
    ),
    "a window that is too short": (
        Deployment(topic={"duplicate_detection_history_time_window": timedelta(minutes=10)}),
        ["wrong    topic T: duplicates are dropped for 10 min only"],
    ),
    "a partitioned topic": (
        Deployment(topic={"enable_partitioning": True}),
        ["wrong    topic T: is partitioned"],
    ),
    "a partitioned topic, as the settings say": (
        Deployment(topic={"enable_partitioning": True}, settings={"SERVICEBUS_TOPIC_PARTITIONED": "true"}),
        [],
    ),
    "settings for a partitioned topic that is none": (
        Deployment(settings={"SERVICEBUS_TOPIC_PARTITIONED": "true"}),
        ["warning  topic T: is not partitioned, and the relay sends one message at a time for nothing"],
    ),
    "deleted when idle": (
        Deployment(topic=DAYS_WITHOUT_USE, subscription=DAYS_WITHOUT_USE),
        [
            "wrong    topic T: is deleted with all that it holds when idle for 14 d",
            "wrong    subscription contact-directory: is deleted with all that it holds when idle for 14 d",
        ],
    ),
    "disabled": (
        Deployment(topic={"status": "Disabled"}, subscription={"status": "Disabled"}),
        ["wrong    topic T: is disabled", "wrong    subscription contact-directory: is disabled"],
    ),
    "no sessions": (
        Deployment(subscription={"requires_session": False}),
        ["wrong    subscription contact-directory: has no sessions"],
    ),
    "one delivery, and no dead letters": (
        Deployment(subscription={"max_delivery_count": 1, "dead_lettering_on_message_expiration": False}),
        [
            "wrong    subscription contact-directory: a message is a dead letter after one failed delivery",
            "wrong    subscription contact-directory: a message that expires is lost",
        ],
    ),
    "events that do not outlive the outage": (
        Deployment(settings={"EVENT_TTL_SECONDS": "3600"}),
        ["wrong    EVENT_TTL_SECONDS: events are kept for 1 h: an outage of 1 h loses those that wait"],
    ),
    "a name that the triggers do not know": (
        Deployment(settings={"COSMOS_LEASE_CONTAINER": ""}),
        ["warning  settings: not set: COSMOS_LEASE_CONTAINER. "],
    ),
}


@pytest.mark.parametrize("case", WRONG_ENTITIES)
async def test_a_wrong_entity_or_setting_is_named(
    case: str, cosmos_server: Service, servicebus_server: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    deployment, expected = WRONG_ENTITIES[case]
    environment = await deployed(deployment, cosmos_server, servicebus_server)
    code, complaints = await preflight(environment, capsys)
    lines = [line.replace(environment["SERVICEBUS_TOPIC"], "T") for line in complaints]
    assert len(lines) == len(expected), lines
    for line, start in zip(lines, expected, strict=True):
        assert line.startswith(start)
        assert ". Fix: " in line
    assert code == (1 if any(line.startswith("wrong") for line in expected) else 0)


async def test_a_longer_outage_needs_a_longer_window_and_longer_lived_events(
    cosmos_server: Service, servicebus_server: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = await deployed(RIGHT, cosmos_server, servicebus_server)
    assert await preflight(environment, capsys, "--survive", "30m") == (0, [])

    code, (window,) = await preflight(environment, capsys, "--survive", "2d")
    assert (code, window.endswith("Fix: set the duplicate detection window to 2 d")) == (1, True)

    code, (ttl, window) = await preflight(environment, capsys, "--survive", "10d")
    assert (code, ttl.startswith("wrong    EVENT_TTL_SECONDS")) == (1, True)
    assert window.endswith("Fix: set the duplicate detection window to 7 d")


async def test_a_wrong_key_is_denied_access(
    cosmos_server: Service, servicebus_server: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = await deployed(RIGHT, cosmos_server, servicebus_server)
    environment["COSMOS"] = environment["COSMOS"].replace("AccountKey=C2y6", "AccountKey=D2y6")
    environment["SERVICEBUS"] = environment["SERVICEBUS"].replace("SAS_KEY_VALUE", "ANOTHER_KEY")
    code, complaints = await preflight(environment, capsys)
    assert len(complaints) == 2, complaints
    cosmos, servicebus = complaints
    assert code == 1
    assert cosmos.startswith("wrong    Cosmos DB: access is denied: (Unauthorized)")
    assert "Fix: put the account's key in COSMOS" in cosmos
    assert servicebus.startswith("wrong    Service Bus: access is denied: ")
    assert "Fix: put a key with the claim Manage in SERVICEBUS" in servicebus
    assert "D2y6" not in cosmos + servicebus
    assert "ANOTHER_KEY" not in cosmos + servicebus


async def test_nothing_reachable_is_not_taken_for_right(capsys: pytest.CaptureFixture[str]) -> None:
    environment = {
        "COSMOS": "AccountEndpoint=http://127.0.0.1:1/;AccountKey=a2V5;",
        "SERVICEBUS": SERVICEBUS_ON_LOOPBACK,
        "SERVICEBUS_ADMIN_PORT": "1",
    }
    code, (_, cosmos, servicebus) = await preflight(environment, capsys)
    assert code == 2
    assert cosmos.startswith("unknown  Cosmos DB: it cannot be reached")
    assert servicebus.startswith("unknown  Service Bus: it cannot be reached")


async def test_services_that_hang_are_given_up(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infra.cosmos.inspection.DEADLINE_SECONDS", 0.5)
    monkeypatch.setattr("infra.servicebus.inspection.DEADLINE_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        environment = {
            "COSMOS": f"AccountEndpoint=http://127.0.0.1:{port}/;AccountKey=a2V5;",
            "SERVICEBUS": SERVICEBUS_ON_LOOPBACK,
            "SERVICEBUS_ADMIN_PORT": str(port),
        }
        code, (_, cosmos, servicebus) = await preflight(environment, capsys)
    assert code == 2
    assert cosmos.startswith("unknown  Cosmos DB: it cannot be reached (TimeoutError)")
    assert servicebus.startswith("unknown  Service Bus: it cannot be reached (TimeoutError)")


async def test_one_service_is_checked_while_the_other_is_away(
    cosmos_server: Service, servicebus_server: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = await deployed(Deployment(topic={}, leases=None), cosmos_server, servicebus_server)
    environment["SERVICEBUS_ADMIN_PORT"] = "1"
    code, (leases, servicebus) = await preflight(environment, capsys)
    assert leases.startswith("wrong    container leases: does not exist")
    assert servicebus.startswith("unknown  Service Bus: ")
    assert code == 1


async def test_a_connection_string_that_is_none_is_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    environment = {"COSMOS": "nonsense", "SERVICEBUS": "nonsense"}
    code, complaints = await preflight(environment, capsys)
    assert code == 2
    assert [line.partition(". Fix")[0] for line in complaints[1:]] == [
        "unknown  Cosmos DB: the connection string is none, or its key is damaged",
        "unknown  Service Bus: the connection string is none, or its key is damaged",
    ]


async def test_what_the_app_does_is_tried_and_leaves_no_trace(
    cosmos_server: Service, servicebus_server: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = await deployed(RIGHT, cosmos_server, servicebus_server)
    code = await asyncio.to_thread(main, ["--as-app"], environment)
    output = capsys.readouterr().out
    assert code == 0, output
    for subject in ("container contacts", "container leases", "container parked-events"):
        assert f"ok       {subject}: may be used as the role Cosmos DB Built-in Data Contributor" in output
    assert (
        f"topic {environment['SERVICEBUS_TOPIC']}: may be used as the role Azure Service Bus Data S" in output
    )
    assert "subscription contact-directory: may be used as the role Azure Service Bus Data Receiver" in output
    async with CosmosClient.from_connection_string(environment["COSMOS"]) as client:
        database = client.get_database_client(environment["COSMOS_DATABASE"])
        for name in ("contacts", "leases", "parked-events"):
            items = database.get_container_client(name).read_all_items()
            assert [item async for item in items] == []


async def test_what_the_app_may_not_do_names_the_role_that_it_needs(
    cosmos_server: Service, servicebus_server: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = await deployed(RIGHT, cosmos_server, servicebus_server)
    environment["SERVICEBUS"] = environment["SERVICEBUS"].replace("SAS_KEY_VALUE", "ANOTHER_KEY")
    code, (_, topic, subscription) = await preflight(environment, capsys, "--as-app")
    assert code == 1
    assert topic.startswith(f"wrong    topic {environment['SERVICEBUS_TOPIC']}: the app may not use it")
    assert "the role Azure Service Bus Data Sender on it" in topic
    assert subscription.startswith("wrong    subscription contact-directory: the app may not use it")
    assert "the role Azure Service Bus Data Receiver on it" in subscription


def plan(environment: dict[str, str]) -> Plan:
    return Plan(
        settings=load(environment),
        subscription=environment["SERVICEBUS_SUBSCRIPTION"],
        unset=(),
        survive=timedelta(hours=1),
        as_app=False,
        emulator_port=int(environment["SERVICEBUS_ADMIN_PORT"]),
    )


@pytest.mark.parametrize(("minutes", "said"), [(20, "20 min ahead of"), (-20, "20 min behind")])
async def test_a_clock_that_is_off_is_said(
    minutes: int, said: str, cosmos_server: Service, servicebus_server: Service
) -> None:
    environment = await deployed(RIGHT, cosmos_server, servicebus_server)
    findings = await check(plan(environment), None, clock=lambda: utc_now() + timedelta(minutes=minutes))
    (line,) = [str(finding) for finding in findings if not str(finding).startswith("ok ")]
    assert line.startswith(f"wrong    clock: this machine's is {said} the account's")


class SignedIn:
    """A developer's sign-in, for as long as ``seconds``: what ``az login`` would give."""

    def __init__(self, seconds: int) -> None:
        self._ends = int(time.time()) + seconds

    async def get_token(self, *_: str, **__: object) -> AccessToken:
        """An unsigned token of Entra's form."""
        claims = json.dumps({"nbf": int(time.time()) - 7200, "exp": self._ends, "oid": "someone"})
        part = base64.urlsafe_b64encode(claims.encode()).decode().rstrip("=")
        return AccessToken(f"e30.{part}.signature", int(time.time()) + 3600)

    async def close(self) -> None:
        """Nothing is open."""


async def test_without_a_key_the_callers_own_sign_in_is_taken_and_a_refusal_names_the_role(
    servicebus_server: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The SDK sends tokens over TLS only, and devstack has none; all else is as it is in Azure.
    monkeypatch.setattr("azure.core.pipeline.policies._authentication_async._enforce_https", lambda _: None)
    folder = tmp_path / "cosmos"
    with running(Service("cosmos", folder, "--data", str(folder), "--accept-entra")) as cosmos:
        environment = await deployed(RIGHT, cosmos, servicebus_server)
        del environment["COSMOS"]
        environment["COSMOS__accountEndpoint"] = cosmos.address
        taken = await check(plan(environment), cast(Credential, SignedIn(3600)))
        assert [str(finding) for finding in taken if not str(finding).startswith("ok ")] == []

        refused = await check(plan(environment), cast(Credential, SignedIn(-60)))
        (line,) = [str(finding) for finding in refused if not str(finding).startswith("ok ")]
        assert line.startswith("wrong    Cosmos DB: access is denied: ")
        assert "the role Cosmos DB Built-in Data Reader on the account" in line
