"""What is due happens once under every fault; and each rule of decision 26, broken, is found by a seed."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random

import pytest

from cosmos_outbox import Names, Service
from cosmos_outbox.cosmos.aggregates import deadlines, documents
from cosmos_outbox.cosmos.aggregates.deadlines import Deadlines, DueDocument
from outbox_simulation import Commands, plugin, simulate, simulating
from outbox_simulation.simulating import PromiseBroken
from tests.support.offers import Offer, Refused

service = Service("offers", [Offer], Names(database="offers", container="offers", topic="offer-events"))


def make(luck: Random, at: datetime) -> Offer:
    return Offer.make(at + timedelta(seconds=luck.uniform(0, 10)))


def accept(offer: Offer, luck: Random, at: datetime) -> None:
    offer.accept()


def extend(offer: Offer, luck: Random, at: datetime) -> None:
    offer.extend(at + timedelta(seconds=luck.uniform(0, 20)))


def found_by(seeds: int) -> None:
    simulate(service, Commands(Offer, create=make, change=[accept, extend], refuses=(Refused,)), seeds=seeds)


@pytest.fixture
def an_index_that_lags(monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows each offer as it was at the look before, too."""
    right, before = Deadlines.pages, dict[str, DueDocument]()

    async def pages(self: Deadlines, now: datetime) -> AsyncIterator[Sequence[DueDocument]]:
        old = [each for each in before.values() if each.due <= now]
        async for page in right(self, now + timedelta(hours=1)):
            before.update({each.id: each for each in page})
        async for page in right(self, now):
            yield [*old, *page]
            old = []

    monkeypatch.setattr(Deadlines, "pages", pages)


@pytest.mark.usefixtures("an_index_that_lags")
def test_whatever_fails_what_is_due_happens_once_and_nothing_else_does() -> None:
    found_by(seeds=6)


@pytest.fixture
def found_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulating, "_SHRINKING_RUNS", 1)
    # Three seeds may not have it, which is all that make test asks for.
    monkeypatch.setattr(plugin, "options", replace(plugin.options, seeds=None))


@pytest.mark.long
@pytest.mark.usefixtures("an_index_that_lags", "found_soon")
def test_without_state_decides_an_offer_that_was_accepted_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "fall_due", lambda offer, at: offer.on_due(at=at))
    with pytest.raises(PromiseBroken, match="happened, and was not due: OfferClosed"):
        found_by(seeds=40)  # it ends with the first


STAYS_OPEN = 10
"""From this seed on: it shows one at once, and its story is short."""


@pytest.mark.long
@pytest.mark.usefixtures("found_soon")
def test_without_stored_with_the_state_an_offer_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "due_field", lambda *_: {})

    def search() -> None:
        for seed in range(STAYS_OPEN, STAYS_OPEN + 40):
            monkeypatch.setattr(plugin, "options", replace(plugin.options, seed=seed))
            found_by(seeds=1)

    with pytest.raises(PromiseBroken, match="still due: offer"):
        search()
