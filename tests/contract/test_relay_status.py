"""The store shows a relay that is late or does not run."""

from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest
from azure.cosmos.aio import CosmosClient

from cosmos_changefeed import ChangeFeedProcessor
from cosmos_outbox.cosmos.relay.forwarding import RelayFailures
from cosmos_outbox.cosmos.relay.parking_lot import CosmosParkingLot
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.kernel.loops import LogThrottle
from cosmos_outbox.operations.relay_status import LeaseState, RelayObserver
from cosmos_outbox.outbox.errors import FailureReason
from devstack.testing import Service
from tests.support.azure import CONTACTS, LEASES, contacts_database, cosmos_connection
from tests.support.emulators import Gap
from tests.support.feed import event_document
from tests.support.telemetry import recording

LEASE_PREFIX = "relay-"


@pytest.fixture
async def observer(cosmos_server: Service, lot: CosmosParkingLot) -> AsyncIterator[RelayObserver]:
    """The relay has checkpointed nothing: its one batch failed, and it was stopped."""
    async with contacts_database(cosmos_server) as database:
        feed, leases = (database.get_container_client(name) for name in (CONTACTS, LEASES))

        async def fail(*_: object) -> None:
            raise ConnectionResetError

        async with ChangeFeedProcessor(
            feed,
            leases,
            fail,
            instance_name="gone",
            lease_prefix=LEASE_PREFIX,
            on_error=lambda *_: None,
        ):
            pass
        await feed.create_item({**event_document("a", 1), "ttl": 1000})
        yield RelayObserver(
            feed,
            leases,
            lot,
            LEASE_PREFIX,
            event_ttl_seconds=1000,
            failures=RelayFailures(leases, f"{LEASE_PREFIX}failures.test", 1000),
            mending_patience_seconds=0.1,
        )


@pytest.mark.known_gap(Gap.CHANGE_FEED)
@pytest.mark.parametrize(
    ("age", "late", "at_risk"),
    [(0, False, False), (600, True, True), pytest.param(400, True, False, marks=pytest.mark.long)],
)
async def test_events_that_wait_too_long_are_an_error_though_no_relay_runs(
    observer: RelayObserver, caplog: pytest.LogCaptureFixture, age: int, late: bool, at_risk: bool
) -> None:
    later = replace(observer, clock=lambda: utc_now() + timedelta(seconds=age))
    with recording() as recorded:
        status = await later.watch()
        measured = {
            name: recorded.gauge(f"outbox.relay.{name}") for name in ("backlog", "oldest_waiting", "ttl_used")
        }
    [lease] = status.leases
    waiting = lease.oldest_waiting_seconds
    assert measured == {"backlog": 1, "oldest_waiting": waiting, "ttl_used": (waiting or 0) / 1000}
    assert (lease.owner, lease.lag) == (None, 1)
    assert lease.oldest_waiting_seconds is not None
    assert age <= lease.oldest_waiting_seconds < age + 60
    assert (status.late, status.events_at_risk) == (late, at_risk)
    assert ("of the events' TTL" in caplog.text) is at_risk


@pytest.mark.known_gap(Gap.CHANGE_FEED)
async def test_where_no_lease_is_left_all_is_late_and_at_risk(
    observer: RelayObserver, caplog: pytest.LogCaptureFixture
) -> None:
    """Lease documents that were deleted, or a relay that never started: nothing could show the age of an event."""
    async for lease in observer.leases.read_all_items():
        await observer.leases.delete_item(lease["id"], partition_key=lease["id"])

    with recording() as recorded:
        status = await observer.watch()
        assert recorded.gauge("outbox.relay.ttl_used") == 1.0, "nobody knows, so it counts as the worst"

    assert (status.leases, status.missing) == ([], ["0"])
    assert (status.late, status.events_at_risk) == (True, True)
    assert "no lease" in caplog.text


@pytest.mark.known_gap(Gap.CHANGE_FEED)
async def test_why_events_wait_is_shown_from_what_relays_have_kept(observer: RelayObserver) -> None:
    """By whichever process: the reasons are beside the leases, each with its last time."""
    await observer.failures.note(FailureReason.BROKER_AWAY, "Service Bus cannot be reached")
    another = replace(
        observer.failures, clock=lambda: utc_now() + timedelta(seconds=1), _throttle=defaultdict(LogThrottle)
    )
    await another.note(FailureReason.STORE_THROTTLES, "the store is at its throughput limit")
    await another.note(FailureReason.STORE_THROTTLES, "not written: one was less than a minute ago")

    noted = (await observer.status()).failures

    assert [(each.reason, each.detail) for each in noted] == [
        (FailureReason.STORE_THROTTLES, "the store is at its throughput limit"),
        (FailureReason.BROKER_AWAY, "Service Bus cannot be reached"),
    ]


async def test_failures_are_returned_from_a_time_on(observer: RelayObserver) -> None:
    at = utc_now()
    failures = replace(observer.failures, clock=lambda: at)
    await failures.note(FailureReason.BROKER_AWAY, "x" * 1000)
    [noted] = await failures.since(at)
    assert (noted.reason, noted.at, noted.detail) == (FailureReason.BROKER_AWAY, at, "x" * 400)
    assert await failures.since(at + timedelta(microseconds=1)) == []


@pytest.mark.known_gap(Gap.CHANGE_FEED)
async def test_a_lease_shows_whether_somebody_works_on_it(observer: RelayObserver) -> None:
    [lease] = (await observer.status()).leases
    assert lease.held is LeaseState.BY_NOBODY
    [document] = [each async for each in observer.leases.read_all_items() if each.get("LeaseToken")]
    await observer.leases.upsert_item({**document, "Owner": "killed"})
    [lease] = (await observer.status()).leases
    assert lease.held is LeaseState.YES
    later = replace(observer, clock=lambda: utc_now() + timedelta(seconds=60))
    [lease] = (await later.status()).leases
    assert lease.held is LeaseState.BY_SILENT


async def test_a_store_that_is_away_holds_up_no_relay_that_keeps_its_failure(cosmos_server: Service) -> None:
    async with CosmosClient.from_connection_string(cosmos_connection(cosmos_server)) as client:
        missing = client.get_database_client("no-such").get_container_client("no-such")
        await RelayFailures(missing, "f", 1000).note(FailureReason.STORE_AWAY, "away")
