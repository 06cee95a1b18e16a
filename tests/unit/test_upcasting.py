"""A subscriber gets each event in the version that it is written for, or its message waits: it never has to guess."""

from datetime import UTC, datetime
from typing import Any

import pytest

from cosmos_outbox import (
    EntrySchema,
    Event,
    Named,
    Names,
    Service,
    TolerantReader,
)
from cosmos_outbox.inbox.errors import NotApplied
from cosmos_outbox.inbox.message import Upcasting
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from examples.subscriber.sqlite_store import SqliteFile

Data = dict[str, Any]

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def cents(data: Data) -> Data:
    """Version 1 had the price in whole euros."""
    return {**data, "price": data["price"] * 100}


def with_currency(data: Data) -> Data:
    """Version 2 had no currency."""
    return {**data, "price": {"amount": data["price"], "currency": "EUR"}}


STEPS = {"Sold": {1: cents, 2: with_currency}}


def event(data: Data, version: int | None, action: str = "Sold") -> Event:
    return Event("e-1", AggregateKey("car", "1"), action, 1, NOON, data, schema_version=version)


@pytest.mark.parametrize(
    ("version", "price"), [(1, 5), (2, 500), (3, {"amount": 500, "currency": "EUR"}), (None, 5)]
)
def test_every_known_version_becomes_the_newest(version: int | None, price: object) -> None:
    """One without a version is of the first: it was stored before events had versions, or by others."""
    given = event({"price": price, "by": "Ada"}, version)
    got = Upcasting(STEPS)(given)
    assert got.data == {"price": {"amount": 500, "currency": "EUR"}, "by": "Ada"}
    assert got.schema_version == 3
    assert (got.id, got.sequence, got.aggregate) == (given.id, given.sequence, given.aggregate)


def test_a_newer_version_is_refused_with_what_to_do() -> None:
    with pytest.raises(
        NotApplied, match=r"Sold e-1 has version 4, and this subscriber knows 3: deploy one that"
    ):
        Upcasting(STEPS)(event({}, 4))


def test_a_version_whose_step_was_taken_away_is_refused() -> None:
    with pytest.raises(NotApplied, match="Sold e-1 has version 1, and upcast begins at 2: declare the steps"):
        Upcasting({"Sold": {2: with_currency}})(event({"price": 5}, 1))


def test_a_step_that_fails_logs_where_and_nothing_personal() -> None:
    with pytest.raises(
        NotApplied, match="the step from version 1 of Sold failed for e-1: KeyError in cents"
    ) as reported:
        Upcasting(STEPS)(event({"buyer": "Ada"}, 1))
    assert "Ada" not in str(reported.value)


def test_a_step_that_changes_what_it_is_given_changes_no_event() -> None:
    """The event is tried again, and would pass the step twice."""

    def impure(data: Data) -> Data:
        data["lines"].append("by a step")
        return data

    given = event({"lines": []}, 1)
    upcast = Upcasting({"Sold": {1: impure}})
    assert upcast(given).data == upcast(given).data == {"lines": ["by a step"]}
    assert given.data == {"lines": []}


# --- where it is declared ------------------------------------------------------------------------------------------


class Row(TolerantReader):
    amount: int


FORM = EntrySchema(Row, search={}, sorted_by=[])


def dealer() -> Service:
    return Service(
        "dealer", publishes=False, store=SqliteFile(Named("DEALER", "dealer.db")), names=Names(topic="cars")
    )
