"""A record of a change with a key that its model allows passes; each that breaks one of the rules is found."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from replayed.commits import Commit, Document
from replayed.keyed import keyed_steps

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = 86_400


def thing(sequence: int, *, deleted: bool = False) -> dict[str, Any]:
    data = {"lastSequence": sequence, "deleted": deleted}
    return {"id": "1", "partitionKey": "1", "type": "thing", "data": data}


def record(sequence: int, *, refused: int | None = None, of: str = "k") -> dict[str, Any]:
    data = {"sequence": sequence, "refused": refused, "fingerprint": of}
    return {"id": f"request-{of}", "partitionKey": "1", "type": "changeRecord", "data": data, "ttl": DAY}


def found(*commits: list[dict[str, Any]], apart: float = 1) -> list[str]:
    """What is wrong with these transactions, one after the other."""
    documents: dict[str, Document] = {}
    told: list[Commit] = []
    for number, written in enumerate(commits):
        changes = tuple((documents.get(each["id"]), each) for each in written)
        documents |= {each["id"]: each for each in written}
        told.append(Commit(NOON + timedelta(seconds=number * apart), changes))
    return [each.why for each in keyed_steps(told, "thing")]


@pytest.mark.parametrize(
    "commits",
    [
        [[thing(1)], [record(2), thing(2)], [thing(3)]],
        [[thing(1)], [record(4), thing(4)], [record(4, of="l")]],
        [[thing(1)], [record(2), thing(2, deleted=True)]],
        [[thing(1)], [record(1, refused=409)]],
    ],
)
def test_what_a_delivery_may_store_is_allowed(commits: list[list[dict[str, Any]]]) -> None:
    assert found(*commits) == []


@pytest.mark.parametrize(
    ("commits", "why"),
    [
        ([[thing(1)], [record(2), thing(2)], [record(3), thing(3)]], "with its record there"),
        ([[thing(1)], [record(1)], [record(2), thing(2)]], "with its record there"),
        ([[thing(1)], [record(1), thing(2)]], "no step without a record"),
        ([[thing(2)], [thing(3)], [record(2)]], "no step without a record"),
        ([[thing(1)], [record(2, refused=409), thing(2)]], "it was refused, and the aggregate is changed"),
        ([[thing(1, deleted=True)], [record(2), thing(2)]], "over a deleted one"),
        ([[thing(1, deleted=True)], [record(1, refused=404)]], "over a deleted one"),
        ([[record(1)]], "there is a record, and no aggregate"),
    ],
)
def test_each_mistake_is_found(commits: list[list[dict[str, Any]]], why: str) -> None:
    [told] = found(*commits)
    assert why in told


def test_after_its_end_a_record_is_none() -> None:
    again = [[thing(1)], [record(2), thing(2)], [record(3), thing(3)]]
    assert found(*again, apart=DAY + 1) == []
