"""What has to be made for a service follows from its declaration, in the form of devstack.toml."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from cosmos_outbox import CosmosDatabase, EntrySchema, Event, ExistingContainer, Names, NoSource, Service
from cosmos_outbox.cli.resources import main
from cosmos_outbox.preflight.resources import resources
from tests.support.paths import ROOT
from tests.testing.bookings import Booking

NAMES = Names(database="rooms", container="rooms", topic="room-events")
RECEIVED = {
    "requires_session": True, "lock_duration": "PT1M", "max_delivery_count": 2000,
    "dead_lettering_on_message_expiration": True,
}  # fmt: skip


class Row(BaseModel):
    title: str = ""


def with_subscribers() -> Service:
    service = Service("rooms", [Booking], NAMES)
    service.read_model(
        "room-board", of=Booking, form=EntrySchema(Row, search={"title": lambda row: row.title}, sorted_by=["title"]),
        state_of=lambda data: Row(title=data["title"]), project=lambda entry, event: None,
    )  # fmt: skip

    @service.reaction(
        "paid", of="payment", to=Booking, target=lambda event: None, order="any", topic="payment-events"
    )
    def paid(booking: Booking | None, event: Event) -> None:
        """Nothing."""

    return service


def test_a_declared_read_model_has_its_container_index_and_subscription() -> None:
    found = resources(with_subscribers(), {})
    containers = {each["name"]: each for each in found["cosmos"]["containers"]}
    assert containers.keys() == {
        "rooms", "rooms-leases", "rooms-parked", "rooms-claims", "rooms-set-aside", "room-board",
    }  # fmt: skip
    assert containers["room-board"] == {
        "database": "rooms", "name": "room-board", "setting": "ROOM_BOARD_CONTAINER",
        "partition_key": ["/partitionKey"], "ttl": -1, "indexes": ["/deleted/?", "/search/title/?"],
        "composite_indexes": [["/search/title", "/id"]],
    }  # fmt: skip
    assert containers["rooms-leases"]["partition_key"] == ["/id"]
    own, foreign = found["servicebus"]["topics"]
    assert own == {
        "name": "room-events", "requires_duplicate_detection": True,
        "duplicate_detection_history_time_window": "PT10M", "enable_partitioning": False,
        "subscriptions": [{"name": "room-board", **RECEIVED}],
    }  # fmt: skip
    assert (foreign["name"], foreign["subscriptions"]) == ("payment-events", [{"name": "paid", **RECEIVED}])
    assert found["subscriptions"] == ["room-board"], "another team's topic is made by that team"
    assert found["settings"] == {
        "COSMOS_DATABASE": "rooms", "COSMOS_CONTAINER": "rooms", "COSMOS_LEASE_CONTAINER": "rooms-leases",
        "COSMOS_PARKED_CONTAINER": "rooms-parked", "COSMOS_CLAIM_CONTAINER": "rooms-claims",
        "COSMOS_SET_ASIDE_CONTAINER": "rooms-set-aside", "SERVICEBUS_TOPIC": "room-events",
        "ROOM_BOARD_SUBSCRIPTION": "room-board", "ROOM_BOARD_CONTAINER": "room-board",
        "PAID_SUBSCRIPTION": "paid", "PAID_TOPIC": "payment-events",
    }  # fmt: skip


def test_a_setting_names_what_is_made() -> None:
    given = {
        "ROOM_BOARD_CONTAINER": "board-2",
        "SERVICEBUS_TOPIC": "mine",
        "SERVICEBUS_TOPIC_PARTITIONED": "true",
    }
    found = resources(with_subscribers(), given)
    assert found["cosmos"]["containers"][-1]["name"] == "board-2"
    assert found["servicebus"]["topics"][0]["name"] == "mine"
    assert found["servicebus"]["topics"][0]["enable_partitioning"] is True
    assert found["settings"]["ROOM_BOARD_CONTAINER"] == "board-2"


@pytest.mark.parametrize(
    "name",
    [
        "COSMOS__accountEndpoint",
        "AzureWebJobsCOSMOS",
        "cosmos",
        "SQLCONNSTR_SERVICEBUS",
        "ServiceBus:clientId",
    ],
)
def test_no_name_depends_on_how_the_store_is_reached(name: str) -> None:
    assert resources(with_subscribers(), {name: "x"}) == resources(with_subscribers(), {})


@pytest.mark.parametrize(
    ("given", "made"),
    [
        (
            {"SERVICEBUS_QUEUE": "room-queue"},
            {"servicebus": {"topics": [], "queues": [{
                "name": "room-queue", "requires_duplicate_detection": True,
                "duplicate_detection_history_time_window": "PT10M", **RECEIVED,
            }]}},
        ),
        (
            {"TRANSPORT": "storagequeue", "STORAGEQUEUE_QUEUES": "room-jobs,room-mails"},
            {"storage": {"connection": "STORAGEQUEUE", "queues": ["room-jobs", "room-mails"]}},
        ),
        ({"TRANSPORT": "webhook", "WEBHOOK_URL": "https://x.test/", "WEBHOOK_SECRETS": "whsec_" + "A" * 32}, {}),
    ],
)  # fmt: skip
def test_each_transport_has_what_it_sends_to(given: Mapping[str, str], made: Mapping[str, Any]) -> None:
    found = resources(Service("rooms", [Booking], NAMES), given)
    assert {name: found[name] for name in found.keys() & {"servicebus", "storage"}} == made


def test_a_container_with_a_teams_own_documents_keeps_the_teams_indexes() -> None:
    own = ExistingContainer(["/tenant", "/user"], {"booking": None}, default_ttl=3600)
    feed, *others = resources(Service("rooms", names=NAMES, own=own), {})["cosmos"]["containers"]
    assert (feed["partition_key"], feed["ttl"], feed["indexes"]) == (["/tenant", "/user"], 3600, ["/*"])
    assert [each["name"] for each in others] == ["rooms-leases", "rooms-parked"]


def test_a_service_that_only_subscribes_has_a_database_of_its_own() -> None:
    service = Service(
        "mailing",
        publishes=False,
        store=CosmosDatabase("mailing", "mailing-set-aside"),
        names=Names(topic="room-events"),
    )
    service.read_model(
        "addresses", of="room", form=EntrySchema(Row, {"title": lambda row: row.title}, ["title"]), source=NoSource(),
        first=lambda event: Row(),
        project=lambda entry, event: None,
    )  # fmt: skip
    found = resources(service, {})
    assert {(each["database"], each["name"]) for each in found["cosmos"]["containers"]} == {
        ("mailing", "mailing-set-aside"), ("mailing", "addresses"),
    }  # fmt: skip
    [topic] = found["servicebus"]["topics"]
    assert [each["name"] for each in topic["subscriptions"]] == ["addresses"]


def test_the_file_that_bicep_reads_is_what_the_command_writes(tmp_path: Path) -> None:
    assert main(["--service", "infra.bootstrap", str(tmp_path / "service.json")], {}) == 0
    written = json.loads((tmp_path / "service.json").read_text())
    assert json.loads((ROOT / "deploy" / "service.json").read_text()) == written, (
        "run: python -m cosmos_outbox resources deploy/service.json"
    )
    assert written["functions"]["triggered"] == ["contact_directory", "relay"]
    assert {"create_contact", "search_directory", "get_docs"} < {*written["functions"]["callers"]}
    assert {"retry_stuck", "get_operations_page", "tend_parked", "relay"} < {*written["functions"]["workers"]}
    assert not {"health", "unrouted"} & {*written["functions"]["callers"], *written["functions"]["workers"]}
