"""A claim, or an aggregate made under one, that the model of claims allows passes; each that breaks a rule is found."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from replayed.claims import claim_steps
from replayed.commits import Commit, Document

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = 86_400


class Store:
    """It takes every write, and notes it; each takes a second."""

    def __init__(self) -> None:
        self.now, self.commits = NOON, list[Commit]()
        self.documents: dict[str, Document] = {}

    def write(self, *documents: dict[str, Any], gone: tuple[str, ...] = ()) -> "Store":
        self.now += timedelta(seconds=1)
        changes = [(self.documents.get(each["id"]), each) for each in documents]
        self.documents |= {each["id"]: each for each in documents}
        removed = [(self.documents.pop(each), None) for each in gone]
        self.commits.append(Commit(self.now, (*changes, *removed)))
        return self

    def later(self, seconds: float) -> "Store":
        self.now += timedelta(seconds=seconds)
        return self

    def found(self) -> list[str]:
        return [each.why for each in claim_steps(self.commits, "thing")]


def claim(thing: str = "1", *, key: str = "k", ttl: int = DAY) -> dict[str, Any]:
    data = {"aggregateId": thing, "fingerprint": f"of {key}"}
    return {"id": key, "partitionKey": key, "type": "idempotencyClaim", "data": data, "ttl": ttl}


def thing(name: str = "1", *, deleted: bool = False, ttl: int = 10 * DAY) -> dict[str, Any]:
    lives = ttl if deleted else -1
    return {
        "id": name, "partitionKey": name, "type": "thing", "data": {"deleted": deleted}, "ttl": lives,
    }  # fmt: skip


def record(name: str = "1", *, of: str = "of k", erased: bool = False, ttl: int = 10 * DAY) -> dict[str, Any]:
    data = {"erased": True} if erased else {"fingerprint": of}
    return {
        "id": f"request-{name}", "partitionKey": name, "type": "idempotencyRecord", "data": data, "ttl": ttl,
    }  # fmt: skip


def claimed() -> Store:
    return Store().write(claim())


def made() -> Store:
    return claimed().write(thing(), record())


@pytest.mark.parametrize(
    "way",
    [
        lambda: made().write(thing()).write(thing(deleted=True), record(erased=True)),
        lambda: Store().write(thing()).write(thing(deleted=True), record(erased=True)),
        lambda: claimed().later(DAY).write(claim("2")).write(thing("2"), record("2")),
        lambda: claimed().write(claim("2", key="l")).write(thing("2"), record("2", of="of l")),
    ],
)
def test_what_a_request_may_do_is_allowed(way: Callable[[], Store]) -> None:
    assert way().found() == []


WRONG: dict[str, tuple[Callable[[], Store], str]] = {
    "a claim is written over another": (lambda: claimed().write(claim("2")), "created_not_read"),
    "a claim is removed": (lambda: claimed().write(gone=("k",)), "a claim is removed"),
    "two claims have one id": (lambda: claimed().write(claim(key="l")), "fresh_id"),
    "a claim names what was made before": (lambda: made().later(DAY).write(claim()), "fresh_id"),
    "an aggregate is made without its record": (
        lambda: claimed().write(thing()),
        "not (live, record: none)",
    ),
    "a record is of another body": (lambda: claimed().write(thing(), record(of="b")), "of another request"),
    "a record is made later": (lambda: Store().write(thing()).write(record()), "no step leads"),
    "the claim is over": (
        lambda: claimed().later(DAY).write(thing(), record()),
        "no claim names it",
    ),
    "an aggregate with a record has no claim": (lambda: Store().write(thing(), record()), "no claim names it"),
    "a record expires before its claim": (lambda: claimed().write(thing(), record(ttl=60)), "lives_as_long"),
    "a tombstone expires before its claim": (
        lambda: made().write(thing(deleted=True, ttl=60), record(erased=True)),
        "lives_as_long",
    ),
    "the answer to a request outlives the aggregate": (
        lambda: made().write(thing(deleted=True)),
        "contact 0 is deleted makes",
    ),
    "what was deleted comes back": (
        lambda: made().write(thing(deleted=True), record(erased=True)).write(thing(), record()),
        "no step leads",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", WRONG)
def test_each_mistake_is_found(mistake: str) -> None:
    way, why = WRONG[mistake]
    [told] = way().found()
    assert why in told
