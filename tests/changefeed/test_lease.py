"""The expectations are documents as the .NET SDK 3.x writes them."""

from datetime import UTC, datetime

import pytest

from cosmos_changefeed.lease import EpkRange, Lease, LeaseVersion

PREFIX = "relay-127.0.0.1_qicAAA==_qicAAPEw9bE="
DOTNET_DOCUMENT = {
    "id": f"{PREFIX}..0",
    "version": 0,
    "_etag": '"9d00e4b4-0000-0d00-0000-65f1c5f00000"',
    "LeaseToken": "0",
    "FeedRange": {"Range": {"min": "", "max": "FF"}},
    "Owner": "ad32cb58-5e9f-4a27-8a2c-4dd7bd1cf3a9",
    "ContinuationToken": '"42"',
    "properties": {},
    "timestamp": "2026-02-03T04:05:06.1234567Z",
    "Mode": "Incremental Feed",
    "_rid": "qicAANsuGmsBAAAAAAAAAA==",
    "_self": "dbs/qicAAA==/colls/qicAANsuGms=/docs/qicAANsuGmsBAAAAAAAAAA==/",
    "_attachments": "attachments/",
    "_ts": 1770091506,
}


def test_a_dotnet_lease_is_understood() -> None:
    lease = Lease.from_document(DOTNET_DOCUMENT)

    assert lease.id == f"{PREFIX}..0"
    assert lease.token == "0"
    assert lease.feed_range == EpkRange("", "FF")
    assert lease.owner == "ad32cb58-5e9f-4a27-8a2c-4dd7bd1cf3a9"
    assert lease.continuation == '"42"'
    assert lease.timestamp == datetime(2026, 2, 3, 4, 5, 6, 123456, UTC)
    assert lease.etag == '"9d00e4b4-0000-0d00-0000-65f1c5f00000"'


def test_a_written_lease_has_the_dotnet_fields_and_no_system_properties() -> None:
    written = Lease.from_document(DOTNET_DOCUMENT).owned_by(None).at('"43"').to_document()

    assert written == {
        "id": f"{PREFIX}..0",
        "version": 0,
        "LeaseToken": "0",
        "FeedRange": {"Range": {"min": "", "max": "FF"}},
        "Owner": None,
        "ContinuationToken": '"43"',
        "properties": {},
        "timestamp": "2026-02-03T04:05:06.123456Z",
        "Mode": "Incremental Feed",
    }


def test_fields_of_others_survive_an_update() -> None:
    document = {**DOTNET_DOCUMENT, "partitionKey": "p", "somethingNew": [1, 2], "properties": {"k": "v"}}

    written = Lease.from_document(document).at('"43"').to_document()

    assert written["partitionKey"] == "p"
    assert written["somethingNew"] == [1, 2]
    assert written["properties"] == {"k": "v"}


def test_a_lease_before_its_first_checkpoint() -> None:
    lease = Lease.from_document({**DOTNET_DOCUMENT, "ContinuationToken": None, "Owner": None})

    assert lease.continuation is None
    assert lease.owner is None
    assert lease.to_document()["ContinuationToken"] is None


@pytest.mark.parametrize(
    "written", ["2026-02-03T04:05:06Z", "2026-02-03T04:05:06", "2026-02-03T06:05:06+02:00"]
)
def test_the_time_of_a_lease_is_that_of_its_zone_and_without_one_utc(written: str) -> None:
    lease = Lease.from_document({**DOTNET_DOCUMENT, "timestamp": written})
    assert lease.timestamp == datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)


def test_a_first_generation_lease_lacks_version_range_and_timestamp() -> None:
    lease = Lease.from_document(
        {
            "id": "x..7",
            "PartitionId": "7",
            "Owner": "host",
            "ContinuationToken": '"1"',
            "properties": {},
            "_ts": 1770091506,
        }
    )

    assert lease.token == "7"
    assert lease.feed_range is None
    assert lease.version is LeaseVersion.PARTITION_KEY_RANGE
    assert lease.timestamp == datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)
    assert "FeedRange" not in lease.to_document()
    assert lease.to_document()["PartitionId"] == "7"


def test_a_lease_of_a_range_keeps_its_version() -> None:
    document = {
        **DOTNET_DOCUMENT,
        "version": 1,
        "LeaseToken": "1F-3F",
        "FeedRange": {"Range": {"min": "1F", "max": "3F"}},
    }

    lease = Lease.from_document(document)

    assert lease.version is LeaseVersion.EPK_RANGE
    assert lease.to_document()["version"] == 1


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        (EpkRange("", "FF"), EpkRange("05C1", "05C2"), True),
        (EpkRange("", "1F"), EpkRange("1F", "FF"), False),
        (EpkRange("1F", "FF"), EpkRange("", "1F"), False),
        (EpkRange("", "20"), EpkRange("1F", "FF"), True),
    ],
)
def test_ranges_overlap_when_they_share_a_key(one: EpkRange, other: EpkRange, overlap: bool) -> None:
    assert one.overlaps(other) is overlap
