"""An alert comes when something is wrong, also when nothing comes any more, and not before.

The queries run on rows as Azure Monitor stores them, in DuckDB through a translator of Kusto's language that is not
Microsoft's. What it cannot show is whether Azure Monitor reads the queries in the same way.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import duckdb_kql
import pytest
from duckdb_kql import engine

from tests.deploy.bicep import MAIN
from tests.deploy.test_alerts import LOG_ALERTS
from tests.support.paths import ROOT

METRICS = "TimeGenerated TIMESTAMP, Name VARCHAR, Sum DOUBLE, ItemCount INTEGER, Properties JSON"
REQUESTS = "TimeGenerated TIMESTAMP, ResultCode VARCHAR, Success BOOLEAN, OperationName VARCHAR"


@dataclass(frozen=True)
class Metric:
    """A row of AppMetrics."""

    name: str
    value: float
    minutes_ago: float = 3
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Request:
    """A row of AppRequests."""

    status: str
    success: bool
    minutes_ago: float = 3


Row = Metric | Request


def window(alert: str) -> int:
    """How many minutes Azure Monitor gives to the query."""
    [minutes] = [each["window"] for each in LOG_ALERTS if each["name"] == alert]
    return (
        int(minutes)
        if minutes.isdigit()
        else default(MAIN.declaration("module", "alerts").properties()[minutes])
    )


@cache
def azure_monitor() -> Any:
    """One for all: to make it takes as long as some queries."""
    return duckdb_kql.connect()


@cache
def in_sql(query: str) -> Any:
    """To translate a query takes most of the time of asking it."""
    return duckdb_kql.to_sql(query, schema=engine.schema(azure_monitor()))


def comes(alert: str, threshold: int, rows: Sequence[Row], destination: str = "") -> bool:
    """Whether the query of an alert gives a row, asked for its window of time; of a destination, or the transport."""
    now, connection = datetime.now(UTC).replace(tzinfo=None), azure_monitor()
    connection.execute(f"CREATE OR REPLACE TABLE AppMetrics ({METRICS})")
    connection.execute(f"CREATE OR REPLACE TABLE AppRequests ({REQUESTS})")
    for row in rows:
        if row.minutes_ago > window(alert):
            continue
        at = now - timedelta(minutes=row.minutes_ago)
        if isinstance(row, Metric):
            values = [at, row.name, row.value, 1, json.dumps(row.attributes)]
            connection.execute("INSERT INTO AppMetrics VALUES (?, ?, ?, ?, ?)", values)
        else:
            connection.execute("INSERT INTO AppRequests VALUES (?, ?, ?, 'x')", [at, row.status, row.success])
    query = (ROOT / "deploy" / "alerts" / f"{alert}.kql").read_text()
    given = f"let threshold = {threshold};\nlet destination = '{destination}';\n"
    sql = in_sql(given + query)
    found = connection.execute(str(sql), sql.parameters).fetchall()
    assert len(found) <= 1
    return bool(found)


def default(parameter: str) -> int:
    return int(MAIN.defaults()[parameter])


@pytest.mark.parametrize(
    ("alert", "parameter", "metric", "highest"),
    [
        ("oldest-waiting", "alertOldestWaitingSeconds", "outbox.relay.oldest_waiting", 60.0),
        ("ttl-used", "alertTtlUsedPercent", "outbox.relay.ttl_used", 0.1),
        ("parked", "alertParkedContacts", "outbox.parked.aggregates", 0.0),
        ("set-aside", "alertSetAsideMessages", "outbox.set_aside.messages", 0.0),
        ("effects", "alertEffectsSeconds", "outbox.effects.oldest", 600.0),
        ("deadlines", "alertDeadlineSeconds", "outbox.due.oldest", 600.0),
    ],
)
def test_the_largest_value_of_a_gauge_decides(
    alert: str, parameter: str, metric: str, highest: float
) -> None:
    threshold, above = default(parameter), highest + 0.01
    assert comes(alert, threshold, [Metric(metric, above)])
    assert not comes(alert, threshold, [Metric(metric, highest)])
    assert comes(alert, threshold, [Metric(metric, above, minutes_ago=4), Metric(metric, highest)])
    assert comes(alert, threshold, [Metric(metric, highest, minutes_ago=4), Metric(metric, above)])
    assert not comes(alert, threshold, [Metric(metric, above, minutes_ago=11)])
    assert not comes(alert, threshold, [Metric("outbox.relay.backlog", 1e9)])
    assert not comes(alert, threshold, []), "that nothing comes is told by no-report, once"


@pytest.mark.parametrize(
    ("alert", "metric", "above"),
    [
        ("oldest-waiting", "outbox.relay.oldest_waiting", 61.0),
        ("ttl-used", "outbox.relay.ttl_used", 0.11),
        ("parked", "outbox.parked.aggregates", 1.0),
    ],
)
def test_an_alert_of_a_relay_is_of_one_destination(alert: str, metric: str, above: float) -> None:
    threshold = {"oldest-waiting": 60, "ttl-used": 10, "parked": 0}[alert]
    own, partner = Metric(metric, 0.0), Metric(metric, above, attributes={"outbox.destination": "partner"})
    assert comes(alert, threshold, [own, partner], "partner")
    assert not comes(alert, threshold, [own, partner])
    assert not comes(alert, threshold, [own, partner], "other")
    assert not comes(alert, threshold, [replace(own, value=above)], "partner")


def test_that_nobody_watches_one_relay_is_not_hidden_by_another() -> None:
    own = Metric("outbox.relay.oldest_waiting", 0)
    partner = replace(own, attributes={"outbox.destination": "partner"})
    assert comes("no-report", 15, [own], "partner")
    assert comes("no-report", 15, [partner])
    assert not comes("no-report", 15, [own, partner], "partner")
    assert not comes("no-report", 15, [own, partner])


def test_what_leaves_for_a_destination_is_no_outflow_of_the_transport() -> None:
    def rows(at: float) -> Sequence[Metric]:
        sent = Metric(SENT, 100, at, {"outbox.destination": "partner"})
        return [Metric(STORED, 100, at), sent]

    assert comes("falling-behind", default("alertBehindMinutes"), each_ten_minutes(rows))


def test_that_nothing_comes_is_told() -> None:
    threshold = default("alertNoReportMinutes")
    assert comes("no-report", threshold, [])
    assert comes("no-report", threshold, [Metric("outbox.relay.oldest_waiting", 0, minutes_ago=16)])
    assert comes("no-report", threshold, [Metric("outbox.events.stored", 1)])
    assert not comes("no-report", threshold, [Metric("outbox.relay.oldest_waiting", 0, minutes_ago=14)])


STORED, SENT, PARKED = "outbox.events.stored", "messaging.client.sent.messages", "outbox.events.parked"


def each_ten_minutes(rows: Callable[[int], Sequence[Metric]]) -> list[Metric]:
    return [row for slot in range(6) for row in rows(slot * 10 + 5)]


@pytest.mark.parametrize(
    ("rows", "behind"),
    [
        (lambda at: [Metric(STORED, 100, at), Metric(SENT, 99, at)], True),
        (lambda at: [Metric(STORED, 100, at)], True),
        (lambda at: [Metric(STORED, 60, at), Metric(STORED, 40, at), Metric(SENT, 100, at)], False),
        (lambda at: [Metric(STORED, 100, at), Metric(SENT, 90, at), Metric(PARKED, 10, at)], False),
        (lambda at: [Metric(STORED, 100, at), Metric(SENT, 500, at, {"error.type": "busy"})], True),
        (lambda at: [Metric(STORED, 100, at), Metric(SENT, 500 if at == 35 else 0, at)], False),
        (lambda at: [Metric(STORED, 100, at)] if at < 50 else [], False),
        (lambda _: [], False),
    ],
    ids=["more in than out", "nothing out", "as much", "the rest is parked", "only attempts that failed",
         "one good quarter", "for less than an hour", "nothing at all"],
)  # fmt: skip
def test_the_relay_is_behind_when_more_comes_in_than_goes_out_all_the_time(
    rows: Callable[[int], Sequence[Metric]], *, behind: bool
) -> None:
    assert comes("falling-behind", default("alertBehindMinutes"), each_ten_minutes(rows)) is behind


def test_what_fails_counts_and_what_the_caller_did_wrong_does_not() -> None:
    threshold = default("alertFailedRequests")
    failed = (
        [Request("503", success=False)] * 3 + [Request("", success=False)] * 2 + [Request("0", success=False)]
    )
    harmless = [Request("404", success=False), Request("200", success=True), Request("0", success=True)] * 10
    assert comes("failed-requests", threshold, [*failed, *harmless])
    assert not comes("failed-requests", threshold, [*failed[1:], replace(failed[0], minutes_ago=16)])
    assert not comes("failed-requests", threshold, [*failed[1:], *harmless])
    assert not comes("failed-requests", threshold, [])
