"""From the requests of the SDK come the commits, each document as it was and as it is."""

import json
from datetime import UTC, datetime
from typing import Any

from replayed.commits import Commit
from replayed.mirror import Mirror

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
PARTITION = {"x-ms-documentdb-partitionkey": '["p"]'}
BATCH = {**PARTITION, "x-ms-cosmos-is-batch-request": "True"}
DOCS = "/dbs/d/colls/parked/docs"


def carried_out(*requests: tuple[str, str, dict[str, str], Any]) -> Mirror:
    mirror = Mirror()
    for method, path, headers, body in requests:
        mirror.carried_out(NOON, "relay-1", method, path, headers, json.dumps(body).encode())
    return mirror


def test_a_transaction_is_one_commit() -> None:
    operations = [
        {"operationType": "Create", "resourceBody": {"id": "a", "n": 1}},
        {"operationType": "Upsert", "resourceBody": {"id": "b", "n": 1}},
    ]
    later = [
        {"operationType": "Replace", "id": "a", "resourceBody": {"id": "a", "n": 2, "_etag": "1"}},
        {"operationType": "Delete", "id": "b"},
        {"operationType": "Read", "id": "a"},
    ]
    mirror = carried_out(("POST", DOCS, BATCH, operations), ("POST", DOCS, BATCH, later))
    a, b = {"id": "a", "n": 1}, {"id": "b", "n": 1}
    assert mirror.commits == [
        Commit(NOON, ((None, a), (None, b)), "relay-1"),
        Commit(NOON, ((a, {"id": "a", "n": 2}), (b, None)), "relay-1"),
    ]


def test_single_writes_are_commits_too() -> None:
    a = {"id": "a"}
    mirror = carried_out(
        ("POST", DOCS, PARTITION, a),
        ("PUT", f"{DOCS}/a", PARTITION, {"id": "a", "n": 1}),
        ("DELETE", f"{DOCS}/a", PARTITION, None),
    )
    assert [each.changes for each in mirror.commits] == [
        ((None, a),),
        ((a, {"id": "a", "n": 1}),),
        (({"id": "a", "n": 1}, None),),
    ]


def test_partitions_are_kept_apart_and_reads_are_no_commits() -> None:
    mirror = carried_out(
        ("POST", DOCS, PARTITION, {"id": "a"}),
        ("POST", DOCS, {"x-ms-documentdb-partitionkey": '["q"]'}, {"id": "a"}),
        ("POST", DOCS, {**PARTITION, "x-ms-documentdb-isquery": "true"}, {"query": "SELECT * FROM c"}),
        (
            "POST",
            DOCS,
            {**PARTITION, "x-ms-cosmos-is-query-plan-request": "True"},
            {"query": "SELECT * FROM c"},
        ),
        ("GET", DOCS, {**PARTITION, "A-IM": "Incremental Feed"}, None),
        ("GET", f"{DOCS}/a", PARTITION, None),
        ("POST", "/dbs/d/colls", {}, {"id": "parked"}),
    )
    assert [each.changes for each in mirror.commits] == [((None, {"id": "a"}),)] * 2


def test_what_is_not_followed_is_told() -> None:
    assert carried_out(("PATCH", f"{DOCS}/a", PARTITION, {"operations": []})).unread == ["a"]
