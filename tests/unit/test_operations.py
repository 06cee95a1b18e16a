"""An operator reaches every aggregate of a service by its own name, also where a service has several."""

import json
from collections import Counter
from datetime import UTC, datetime

import azure.functions as func
import pytest

from cosmos_outbox.functions.operator import operations
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.operations.relay_status import RelayStatus
from cosmos_outbox.operations.views.names import PathNames
from cosmos_outbox.outbox.errors import NotParked
from cosmos_outbox.outbox.parking_lot import ParkedEvent, ParkedPage, ParkedState

NAMES = [
    PathNames(aggregate_type="account", path="accounts", owner="accountId", count="parkedAccounts"),
    PathNames(aggregate_type="transfer", path="transfers", owner="transferId", count="parkedTransfers"),
]


def replay(path: str) -> func.HttpRequest:
    return func.HttpRequest(
        "POST", f"/api/parked/{path}/7/replay", body=b"", route_params={"path": path, "id": "7"}
    )


def parked(aggregate: AggregateKey | None) -> ParkedEvent:
    return ParkedEvent(
        id="0" * 32, event_id="e", aggregate=aggregate, action=None, sequence=None, reason="too large",
        parked_at=datetime(2026, 3, 1, tzinfo=UTC), state=ParkedState.WAITING, document={},
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
    answer = operations.parked_listed(ParkedPage([parked(aggregate)], None), NAMES, 60)
    [item] = json.loads(answer.get_body())["items"]
    assert (item["accountId"], item["transferId"]) == (account, transfer)


def test_each_type_has_its_own_count() -> None:
    status = RelayStatus([], ["7"], Counter(account=2), parked_events=5)
    document = json.loads(operations.relay_status(status, NAMES).get_body())
    assert (document["parkedAccounts"], document["parkedTransfers"], document["parkedEvents"]) == (2, 0, 5)
    assert (document["late"], document["missingLeases"], document["leases"]) == (True, ["7"], [])
