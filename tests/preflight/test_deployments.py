"""Each known mistake of a deployment is reported by one line of its own, and nothing else is reported.

A deployment has several of them: what is looked at takes longer than what is found.
"""

import asyncio
import json
from datetime import timedelta
from pathlib import Path

import pytest
from azure.servicebus.management import SqlRuleFilter

from cosmos_outbox.cli.preflight import main
from devstack import provision
from devstack.administration import administration_client
from devstack.settings import read_settings
from devstack.testing import Service, running
from tests.preflight.deployment import (
    LISTED,
    SORTED_BY,
    ContainerOf,
    Deployment,
    deployed,
    indexed,
    preflight,
    sorted_by,
)
from tests.support.paths import ROOT

RIGHT = Deployment()
SEARCHED = (
    "/deleted/?, /search/name/?, /search/lastName/?, /search/email/?, /search/company/?, /search/city/?, "
    "/search/country/?, /search/created/?, /search/changed/?"
)
PARKED = "/type/?, /aggregateType/?, /aggregateId/?, /position/?, /parkedAt/?"
COVERED = (
    "duplicates are dropped for 1 h, an outage of 1 h included; events are kept for 10 d, "
    "so a subscriber must drop later repetitions, by the event's id or sequence"
)


async def test_a_right_deployment_passes_and_every_promise_has_its_line(
    cosmos_server: Service, servicebus_server: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = await deployed(RIGHT, cosmos_server, servicebus_server)
    code = await asyncio.to_thread(main, ["--survive", "1h"], environment)
    topic, subscription = f"topic {environment['SERVICEBUS_TOPIC']}", "subscription contact-directory"
    assert capsys.readouterr().out.splitlines() == [
        "ok       EVENT_TTL_SECONDS: events are kept for 10 d, an outage of 1 h is shorter",
        "ok       account: default consistency Session",
        "ok       account: takes writes in one region",
        "ok       container contacts: partition key /partitionKey",
        "ok       container contacts: an item expires only by a TTL of its own",
        "ok       container contacts: indexed: /type/?, /data/deleted/?, /data/createdAt/?, /data/email/?",
        "ok       container leases: partition key /id",
        "ok       container leases: an item expires only by a TTL of its own",
        "ok       container leases: indexed: nothing but the id",
        "ok       container parked-events: partition key /partitionKey",
        "ok       container parked-events: an item expires only by a TTL of its own",
        f"ok       container parked-events: indexed: {PARKED}",
        "ok       container claims: partition key /partitionKey",
        "ok       container claims: an item expires only by a TTL of its own",
        "ok       container claims: indexed: nothing but the id",
        "ok       container set-aside: partition key /partitionKey",
        "ok       container set-aside: an item expires only by a TTL of its own",
        "ok       container set-aside: indexed: /state/?, /setAsideAt/?, /triedAt/?, /aggregateType/?, /aggregateId/?",
        "ok       container directory: partition key /partitionKey",
        "ok       container directory: an item expires only by a TTL of its own",
        f"ok       container directory: indexed: {SEARCHED}",
        "ok       clock: this machine's clock is within 5 min of the account's",
        f"ok       {topic}: {COVERED}",
        f"ok       {topic}: is not partitioned",
        f"ok       {topic}: is not deleted when it is not used",
        f"ok       {subscription}: sessions: the events of one aggregate come in order",
        f"ok       {subscription}: 2000 deliveries of a message outlast a store that is away for 25 h",
        f"ok       {subscription}: a message that expires is kept as a dead letter",
        f"ok       {subscription}: is not deleted when it is not used",
        "29 ok",
    ]
    assert code == 0


async def test_the_local_stack_passes_for_an_outage_as_long_as_its_window(
    cosmos_server: Service, servicebus_server: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = {
        **json.loads((ROOT / "local.settings.sample.json").read_text())["Values"],
        "COSMOS": cosmos_server.connection_string,
        "SERVICEBUS": servicebus_server.connection_string,
        "SERVICEBUS_ADMIN_PORT": servicebus_server.addresses[1].rpartition(":")[2],
    }
    app = read_settings(environment, ROOT).app
    await provision.cosmos(environment["COSMOS"], app.cosmos)
    await provision.servicebus(servicebus_server.admin_connection_string, app.servicebus)
    code, complaints = await preflight(environment, capsys, "--survive", "5m")
    assert code == 0, complaints


async def test_a_subscription_with_a_filter_is_reported_with_its_consequence(
    cosmos_server: Service, servicebus_server: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = await deployed(RIGHT, cosmos_server, servicebus_server)
    topic, name = environment["SERVICEBUS_TOPIC"], environment["SERVICEBUS_SUBSCRIPTION"]
    async with administration_client(servicebus_server.admin_connection_string) as admin:
        await admin.create_rule(topic, name, "some", filter=SqlRuleFilter("action = 'ContactCreatedEvent'"))
        await admin.delete_rule(topic, name, "$Default")
    code, [line] = await preflight(environment, capsys, "--survive", "1h")
    assert (code, line.startswith(f"warning  subscription {name}: has a filter")) == (0, True)
    assert "at the next gap" in line


async def test_tombstones_that_a_call_may_outlive_are_wrong(
    cosmos_server: Service, servicebus_server: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = await deployed(
        Deployment(settings={"EVENT_TTL_SECONDS": "120"}), cosmos_server, servicebus_server
    )
    code, [line] = await preflight(environment, capsys, "--survive", "1m")
    assert (code, line.startswith("wrong    EVENT_TTL_SECONDS: tombstones are kept for 2 min")) == (1, True)


async def test_an_account_that_takes_writes_in_several_regions_is_wrong(
    tmp_path: Path, servicebus_server: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    with running(Service("cosmos", tmp_path / "data", "--faults")) as cosmos:
        environment = await deployed(RIGHT, cosmos, servicebus_server)
        await cosmos.faults.allow_multiple_writes(allowed=True)
        code, [line] = await preflight(environment, capsys, "--survive", "1h")
    assert (code, line.startswith("wrong    account: it takes writes in several regions")) == (1, True)
    assert "Fix: turn multi-region writes off" in line


async def test_few_deliveries_are_used_up_by_an_outage(
    cosmos_server: Service, servicebus_server: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    few = Deployment(subscription={"max_delivery_count": 10})
    environment = await deployed(few, cosmos_server, servicebus_server)
    code, [line] = await preflight(environment, capsys, "--survive", "1h")
    assert (
        code,
        line.startswith("warning  subscription contact-directory: 10 deliveries of a message outlast"),
    ) == (
        0,
        True,
    )
    assert (await preflight(environment, capsys, "--survive", "7m")) == (0, [])


WRONG_CONTAINERS = {
    "without TTL, and a directory that cannot be sorted by city": (
        Deployment(
            contacts=ContainerOf(default_ttl=None),
            leases=ContainerOf("/id", None, indexed()),
            parked=ContainerOf(default_ttl=None),
            claims=ContainerOf(default_ttl=None, indexing=indexed()),
            directory=ContainerOf(indexing=sorted_by(*(each for each in SORTED_BY if each != "city"))),
        ),
        [
            "wrong    container contacts: TTL is off",
            "wrong    container contacts: no composite index over /type, /data",
            "warning  container leases: TTL is off, so the lock of an instance that crashes",
            "wrong    container parked-events: TTL is off",
            "warning  container parked-events: everything",
            "wrong    container claims: TTL is off, so the TTL of its items is ignored",
            "wrong    container directory: no composite index over /search/city, /id, so lists sorted by these are",
        ],
    ),
    "by another key, and a query without its index": (
        Deployment(
            contacts=ContainerOf("/id", indexing=LISTED),
            leases=ContainerOf("/partitionKey", indexing=indexed()),
            parked=ContainerOf(indexing=indexed("/type/?", "/position/?")),
            claims=ContainerOf("/id", indexing=indexed()),
        ),
        [
            "wrong    container contacts: the partition key is /id, not /partitionKey. Fix: a partition key cannot",
            "wrong    container leases: the partition key is /partitionKey, not /id",
            "wrong    container parked-events: /aggregateType/?, /aggregateId/?, /parkedAt/? is queried",
            "wrong    container claims: the partition key is /id, not /partitionKey",
        ],
    ),
    "with a default TTL, and no claims": (
        Deployment(
            contacts=ContainerOf(
                default_ttl=600,
                indexing=LISTED | {"includedPaths": [{"path": "/type/?"}, {"path": "/data/*"}]},
            ),
            leases=ContainerOf("/id", 86_400, indexed()),
            claims=None,
        ),
        [
            "warning  container contacts: an item without a TTL of its own is removed 10 min after",
            "wrong    container leases: an item without a TTL of its own is removed 1 d after",
            "wrong    container claims: does not exist in the database",
        ],
    ),
    "no index at all, no leases, nothing parked": (
        Deployment(contacts=ContainerOf(indexing={"indexingMode": "none"}), leases=None, parked=None),
        [
            "wrong    container contacts: nothing is indexed",
            "wrong    container leases: does not exist in the database",
            "wrong    container parked-events: does not exist in the database",
        ],
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
    "no topic, and events that do not outlive the outage": (
        Deployment(topic=None, settings={"EVENT_TTL_SECONDS": "3600"}),
        [
            "wrong    EVENT_TTL_SECONDS: events are kept for 1 h: an outage of 1 h loses the events that wait",
            "wrong    topic T: does not exist. Fix: create it",
        ],
    ),
    "no duplicate detection, no subscription": (
        Deployment(topic={"requires_duplicate_detection": False}, subscription=None),
        [
            "wrong    topic T: duplicate detection is off",
            "wrong    subscription contact-directory: does not exist in the topic",
        ],
    ),
    "a window that is too short, no sessions": (
        Deployment(
            topic={"duplicate_detection_history_time_window": timedelta(minutes=10)},
            subscription={"requires_session": False},
        ),
        [
            "wrong    topic T: duplicates are dropped for 10 min only",
            "wrong    subscription contact-directory: has no sessions",
        ],
    ),
    "a partitioned topic, deleted when idle": (
        Deployment(topic={"enable_partitioning": True} | DAYS_WITHOUT_USE, subscription=DAYS_WITHOUT_USE),
        [
            "wrong    topic T: is partitioned",
            "wrong    topic T: is deleted with its messages after 14 d without use",
            "wrong    subscription contact-directory: is deleted with its messages after 14 d without use",
        ],
    ),
    "a partitioned topic, as the settings say; a name that is not set is the service's own, for the triggers too": (
        Deployment(
            topic={"enable_partitioning": True},
            settings={"SERVICEBUS_TOPIC_PARTITIONED": "true", "COSMOS_LEASE_CONTAINER": ""},
        ),
        [],
    ),
    "settings for a partitioned topic, and one that is not; one delivery, and no dead letters": (
        Deployment(
            settings={"SERVICEBUS_TOPIC_PARTITIONED": "true"},
            subscription={"max_delivery_count": 1, "dead_lettering_on_message_expiration": False},
        ),
        [
            "warning  topic T: is not partitioned, so the relay sends one message at a time without need",
            "wrong    subscription contact-directory: a message becomes a dead letter after one failed delivery",
            "wrong    subscription contact-directory: a message that expires is lost",
        ],
    ),
    "disabled": (
        Deployment(topic={"status": "Disabled"}, subscription={"status": "Disabled"}),
        ["wrong    topic T: is disabled", "wrong    subscription contact-directory: is disabled"],
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


@pytest.mark.long
async def test_a_longer_outage_needs_a_longer_window_and_longer_lived_events(
    cosmos_server: Service, servicebus_server: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = await deployed(RIGHT, cosmos_server, servicebus_server)
    code, [line] = await preflight(environment, capsys, "--survive", "30m", "--subscription", "billing")
    assert (code, line.startswith("wrong    subscription billing: does not exist in the topic")) == (1, True)

    code, (window,) = await preflight(environment, capsys, "--survive", "2d")
    assert (code, window.endswith("Fix: set the duplicate detection window to 2 d")) == (1, True)

    code, (ttl, window) = await preflight(environment, capsys, "--survive", "10d")
    assert (code, ttl.startswith("wrong    EVENT_TTL_SECONDS")) == (1, True)
    assert window.endswith("Fix: set the duplicate detection window to 7 d")


@pytest.mark.long
async def test_another_service_is_checked_by_its_own_indexes_and_subscriptions(
    cosmos_server: Service, servicebus_server: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    home = ROOT / "examples" / "orders"
    environment = {
        **json.loads((home / "local.settings.sample.json").read_text())["Values"],
        "COSMOS": cosmos_server.connection_string,
        "SERVICEBUS": servicebus_server.connection_string,
        "SERVICEBUS_ADMIN_PORT": servicebus_server.addresses[1].rpartition(":")[2],
    }
    app = read_settings(environment, home).app
    await provision.cosmos(environment["COSMOS"], app.cosmos)
    await provision.servicebus(servicebus_server.admin_connection_string, app.servicebus)
    orders = ["--service", "examples.orders.service", "--survive", "5m", "--subscription", "order-board"]
    code, complaints = await preflight(environment, capsys, *orders)
    assert code == 0, complaints
    board = [line for line in complaints if "container order-board" in line]
    assert ["everything is indexed" in line for line in board] == [True]
    assert "/search/customer/?, /search/status/?" in board[0]
    mixed_up = environment | {"COSMOS_DATABASE": "orders", "COSMOS_DIRECTORY_CONTAINER": "order-board"}
    code, complaints = await preflight(mixed_up, capsys, "--survive", "5m")
    assert code == 1
    assert any(
        line.startswith("wrong    container order-board: no composite index over /search/name")
        for line in complaints
    ), "the board has not the indexes of the directory"


async def test_a_service_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    code = await asyncio.to_thread(
        main, ["--service", "examples.invoices.bootstrap"], {"COSMOS": "x", "SERVICEBUS": "x"}
    )
    assert code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "preflight: --service examples.invoices.bootstrap: there is no Service there. Name the module that declares"
    )
