"""An operator reaches every aggregate of a service by its own name, also where a service has several."""

import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from cosmos_outbox.cli.status import attention_of_relay
from cosmos_outbox.functions.operator import calls as operations
from cosmos_outbox.http.message import Request
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import SYSTEM, using
from cosmos_outbox.operations import views
from cosmos_outbox.operations.forwarding import Instance
from cosmos_outbox.operations.relay_status import LeaseStatus, RelayStatus
from cosmos_outbox.operations.views import PathNames
from cosmos_outbox.outbox.errors import NotParked
from cosmos_outbox.outbox.parking_lot import ParkedEvent, ParkedPage, ParkedState

NAMES = [
    PathNames(aggregate_type="account", path="accounts", owner="accountId", count="parkedAccounts"),
    PathNames(aggregate_type="transfer", path="transfers", owner="transferId", count="parkedTransfers"),
]


def replay(path: str) -> Request:
    return Request("POST", f"/api/parked/{path}/7/replay", route={"path": path, "id": "7"})


def parked(aggregate: AggregateKey | None) -> ParkedEvent:
    return ParkedEvent(
        id="0" * 32, event_id="e", aggregate=aggregate, action=None, sequence=None, reason="too large",
        parked_at=datetime(2026, 3, 1, tzinfo=UTC), state=ParkedState.WAITING,
        attempts=0, attempted_at=None, discarding=None, is_notice=False,
    )  # fmt: skip


def test_the_path_names_the_type_of_the_aggregate_that_is_replayed() -> None:
    assert operations.parked_aggregate(replay("accounts"), NAMES) == AggregateKey("account", "7")
    assert operations.parked_aggregate(replay("transfers"), NAMES) == AggregateKey("transfer", "7")


def test_a_path_of_no_aggregate_is_answered_with_those_that_there_are() -> None:
    with pytest.raises(
        NotParked, match=r"no contacts: call parked/accounts/\{id\}/replay, parked/transfers/"
    ):
        operations.parked_aggregate(replay("contacts"), NAMES)


@pytest.mark.parametrize(
    ("aggregate", "account", "transfer"),
    [
        (AggregateKey("account", "7"), "7", None),
        (AggregateKey("transfer", "7"), None, "7"),
        (None, None, None),
    ],
)
def test_a_parked_event_carries_its_aggregates_id_under_the_aggregates_own_name(
    aggregate: AggregateKey | None, account: str | None, transfer: str | None
) -> None:
    view = views.parked_list(ParkedPage([parked(aggregate)], None), NAMES, 60)
    [item] = view["items"]
    assert (item["accountId"], item["transferId"]) == (account, transfer)


def test_each_type_has_its_own_count() -> None:
    status = RelayStatus([], ["7"], Counter(account=2), parked_events=5)
    document = views.relay_status(status, NAMES)
    assert (document["parkedAccounts"], document["parkedTransfers"], document["parkedEvents"]) == (2, 0, 5)
    assert (document["late"], document["eventsAtRisk"]) == (True, True)
    assert (document["missingLeases"], document["leases"]) == (["7"], [])


@pytest.mark.parametrize(
    ("seconds", "used", "late", "at_risk"),
    [(60, 0.0, False, False), (61, 0.0, True, False), (432_000, 0.5, True, True), (None, 0.0, False, False)],
)
def test_what_is_late_and_what_is_at_risk_are_told_apart(
    seconds: int | None, used: float, late: bool, at_risk: bool
) -> None:
    leases = [LeaseStatus("0", "o", 1, seconds, used), LeaseStatus("1", "o", 0, None, 0.0)]
    document = views.relay_status(RelayStatus(leases, [], Counter()), NAMES)
    assert (document["late"], document["eventsAtRisk"]) == (late, at_risk)
    wants = list(attention_of_relay(document, {}))
    begins = ["events are at risk: "] if at_risk else ["the relay is late: "] if late else []
    assert [want[: len(begin)] for want, begin in zip(wants, begins, strict=True)] == begins


def test_an_instance_tells_its_rate_to_a_tenth_and_what_the_service_calls_things() -> None:
    process = Instance({"COSMOS_DATABASE": "d"})
    seconds = [100.0]
    for second in (100.0, 101.0):
        seconds[0] = second
        with using(replace(SYSTEM, monotonic=lambda: seconds[0])):
            process.forwarded.add(103)
            told = json.loads(operations.instance(process, NAMES, ["set-aside"]).body)
    assert told["forwardedPerSecond"] == 10.3, "over ten seconds"
    assert (told["forwarded"], told["lists"], told["settings"]) == (
        206,
        ["set-aside"],
        {"COSMOS_DATABASE": "d"},
    )
    assert [each["owner"] for each in told["aggregates"]] == ["accountId", "transferId"]
