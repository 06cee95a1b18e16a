"""What is due in a team's own documents happens once under every fault; and each rule of 0026, broken, is found."""

import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from random import Random
from typing import Any

import pytest

from cosmos_outbox import Names
from cosmos_outbox.cosmos.own import deadlines, due
from cosmos_outbox.cosmos.own.deadlines import OwnDue
from cosmos_outbox.cosmos.own.due import DueTimes
from cosmos_outbox.cosmos.store.container import StoreFailed
from cosmos_outbox.cosmos.store.item import Item
from cosmos_outbox.cosmos.store.writes import Write
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.deadlines import DueDocument
from outbox_simulation import plugin, simulate, simulating
from outbox_simulation.deriving.found import OwnChange, StoredEvent
from outbox_simulation.deriving.own_due import own_not_due, own_still_due
from outbox_simulation.simulating import PromiseBroken
from tests.support.held import KINDS, at
from tests.support.offers import NOON

SEATS = "seats"
KEY = ("acme", 7)
ZONE: tzinfo = UTC
"""In which the team writes times."""
service = replace(KINDS["hierarchical"], names=Names(database="seats", container=SEATS, topic="seat-events"))


async def ask(luck: Random, now: datetime) -> None:
    """Somebody holds a seat that is free, or pays or extends what is held: as a team's own code does it."""
    outbox, name = service().outbox, f"seat-{luck.randrange(4)}"
    until = (now + timedelta(seconds=luck.uniform(0, 15))).astimezone(ZONE).isoformat()
    held: Item = {"state": "held", "hold": {"until": until}}
    paid: Item = {"state": "paid", "hold": None}
    action, changed = luck.choice([("SeatPaid", paid), ("HoldExtended", held)])
    try:
        found = await outbox.container(SEATS).read(name, KEY)
    except StoreFailed as error:
        raise error.failure.error() from error
    if found is None or found["state"] != "held":
        action, changed = "SeatHeld", held
    async with outbox.transaction(KEY) as tx:
        if found is None:
            tx.create({"id": name, "tenantId": "acme", "row": 7, "type": "seat", **changed})
        else:
            tx.replace(found | changed, if_match=found["_etag"])
        tx.event(action, of=("seat", name))


def found_by(seeds: int) -> None:
    simulate(service, ask, seeds=seeds)


@pytest.fixture
def an_index_that_lags(monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows each seat as it was at the look before, too."""
    right, before = OwnDue.pages, dict[str, DueDocument]()

    async def pages(self: OwnDue, now: datetime) -> AsyncIterator[Sequence[DueDocument]]:
        old = [each for each in before.values() if each.due <= now]
        async for page in right(self, now + timedelta(hours=1)):
            before.update({each.id: each for each in page})
        async for page in right(self, now):
            yield [*old, *page]
            old = []

    monkeypatch.setattr(OwnDue, "pages", pages)


@pytest.mark.usefixtures("an_index_that_lags")
def test_whatever_fails_what_is_due_happens_once_and_nothing_else_does() -> None:
    found_by(seeds=6)


@pytest.fixture
def found_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulating, "_SHRINKING_RUNS", 1)
    # Three seeds may not have it, which is all that make test asks for.
    monkeypatch.setattr(plugin, "options", replace(plugin.options, seeds=None))


@pytest.mark.usefixtures("an_index_that_lags", "found_soon")
def test_without_state_decides_a_seat_that_was_paid_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OwnDue, "_due", lambda *_: NOON - timedelta(days=3650))
    with pytest.raises(PromiseBroken, match="happened, and was not due: SeatFreed"):
        found_by(seeds=40)  # it ends with the first


@pytest.mark.long
@pytest.mark.usefixtures("found_soon")
def test_without_at_its_version_a_payment_is_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    def unpinned(item: Item, due: datetime, write: Write | None, *_: Any) -> None:
        object.__setattr__(write, "if_match", None)

    monkeypatch.setattr(deadlines, "_check_settled", unpinned)
    with pytest.raises(PromiseBroken, match=r"happened, and was not due: SeatFreed|gap: seat"):
        found_by(seeds=200)


@pytest.mark.long
@pytest.mark.usefixtures("found_soon")
def test_without_its_form_a_time_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A team writes the time of its own zone, and nothing refuses it."""
    monkeypatch.setattr(due, "_FORM", re.compile(".*"))
    monkeypatch.setitem(globals(), "ZONE", timezone(timedelta(hours=5)))
    with pytest.raises(PromiseBroken, match="still due: document seat"):
        found_by(seeds=40)


def change(document: Item | None, cause: str, when: str) -> OwnChange:
    event = StoredEvent("e", AggregateKey("seat", "s-1"), 1, "SeatFreed", cause, {"createdAt": when})
    return OwnChange({("[7]", "s-1"): document}, [event])


@pytest.mark.parametrize(
    ("held", "second", "is_wrong"),
    [
        ({"hold": {"until": at(0)}}, ("due-1", at(0)), False),
        ({"hold": {"until": at(0)}}, ("due-1", at(-1)), True),
        ({"hold": {"until": at(0)}}, ("request-1", at(-1)), False),
        ({"hold": None}, ("due-1", at(0)), True),
        (None, ("due-1", at(0)), False),
    ],
)
def test_what_happened_before_it_was_due_is_told(
    held: Item | None, second: tuple[str, str], is_wrong: bool
) -> None:
    assert service.own is not None
    changes = [change(held and {"id": "s-1", **held}, "request-1", at(-9)), change({"id": "s-1"}, *second)]
    told = [each.rule for each in own_not_due(changes, DueTimes(service.own))]
    assert told == (["happened, and was not due"] if is_wrong else [])


def test_what_stays_due_is_told() -> None:
    assert service.own is not None
    stored: list[Item] = [
        {"id": "s-1", "hold": {"until": at(0)}},
        {"id": "s-2", "hold": {"until": at(1)}},
        {"id": "s-3"},
    ]
    [told] = own_still_due(stored, DueTimes(service.own), NOON)
    assert (told.rule, told.may_pass, "s-1" in told.about) == ("still due", True, True)
