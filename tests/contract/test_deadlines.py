"""What is due happens once, whatever is lost and whichever process looks, and not if the aggregate changed before.

The rules are named in ``cosmos_outbox/cosmos/aggregates/deadlines.py`` and in decision 26.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import uuid4

import pytest
from azure.cosmos.aio import CosmosClient

from cosmos_outbox.cosmos.aggregates.deadlines import Deadlines, deadlines_of
from cosmos_outbox.cosmos.aggregates.unit_of_work import Lifetimes
from cosmos_outbox.cosmos.inbox.reaction_decision import InOrder
from cosmos_outbox.cosmos.inbox.reactions import CosmosReactions, ReactionInbox
from cosmos_outbox.cosmos.store.container import StoreFailed, Write
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.cosmos.store.partition_key import Key
from cosmos_outbox.cosmos.transaction import OnCommit
from cosmos_outbox.inbox.message import Event
from cosmos_outbox.outbox.aggregate import Origin
from cosmos_outbox.outbox.errors import Throttled, Unpublishable
from devstack.testing import Service
from tests.support.azure import CONTACTS, contacts_database
from tests.support.emulators import Gap
from tests.support.losses import EACH_LOSS, Failing, Fate, Loss, ProcessDied
from tests.support.offers import LATER, NOON, Offer, Offers, PatientOffer, Refused, aggregates_over
from tests.support.reactions import LIVES, CutOff, Heap, message_for, no_loss
from tests.support.telemetry import Recorded, recording

pytestmark = pytest.mark.known_gap(Gap.BATCH_IGNORES_ETAG)

SECOND = timedelta(seconds=1)


@pytest.fixture
async def offers(cosmos_server: Service) -> AsyncIterator[Offers]:
    async with (
        contacts_database(cosmos_server) as database,
        CosmosClient.from_connection_string(cosmos_server.connection_string) as client,
    ):
        yield Offers(client, (database.id, CONTACTS))


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    with recording() as found:
        yield found


class Meets(Failing):
    """Something happens just before the first write that renews no token."""

    before: Callable[[], Awaitable[None]] | None = None

    async def execute(self, partition_key: Key, writes: Sequence[Write]) -> list[str]:
        if self.before is not None and "data" in writes[0].item:
            before, self.before = self.before, None
            await before()
        return await super().execute(partition_key, writes)


@pytest.mark.parametrize("loss", EACH_LOSS)
async def test_whatever_write_is_lost_an_offer_runs_out_once(offers: Offers, loss: Loss) -> None:
    write = 0
    while write == 0 or offers.fate.struck:
        write += 1
        offers.fate = no_loss()
        name = await offers.made()
        offers.fate = Fate(loss, write)
        await offers.until_met()
        await offers.until_met()
        assert await offers.history(name) == ["OfferMade", "expired"], f"write {write}"
    assert write > 1


async def test_a_process_that_dies_at_any_await_lets_it_run_out_once(offers: Offers) -> None:
    at, died = 0, True
    while died:
        name = await offers.made()
        instance = offers.instance()
        [[found]] = [page async for page in instance.pages(NOON)]
        try:
            await CutOff(instance.fire_one(found, NOON), at)
        except ProcessDied:
            await offers.until_met()
        else:
            died = False
        assert await offers.history(name) == ["OfferMade", "expired"], f"await {at}"
        at += 1
    assert at > 3


async def test_instances_at_once_let_each_run_out_once(offers: Offers) -> None:
    names = [await offers.made() for _ in range(6)]
    met = await asyncio.gather(*(offers.instance().fire_due() for _ in range(3)))
    assert sum(met) == 6
    for name in names:
        assert await offers.history(name) == ["OfferMade", "expired"]


async def test_more_than_a_page_of_them_is_met_in_one_round(
    offers: Offers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cosmos_outbox.cosmos.aggregates.deadlines._PAGE", 4)
    for _ in range(10):
        await offers.made()
    assert await offers.instance().fire_due() == 10
    assert await offers.instance().fire_due() == 0


async def test_it_is_never_early_by_the_clock_of_who_looks(offers: Offers) -> None:
    due = NOON + timedelta(milliseconds=400)
    name = await offers.made(due.astimezone(timezone(timedelta(hours=5))))
    assert (await offers.document(name))["due"] == "2026-03-01T12:00:01Z"
    for offers.now, met in ((NOON, 0), (due - timedelta(microseconds=1), 0), (NOON + SECOND, 1)):
        assert await offers.instance().fire_due() == met


async def test_a_change_moves_it_or_cancels_it_in_the_same_write(offers: Offers) -> None:
    moved, cancelled, accepted, gone = [await offers.made() for _ in range(4)]
    await offers.change(moved, lambda offer: offer.extend(LATER))
    await offers.change(cancelled, lambda offer: offer.extend(None))
    await offers.change(accepted, Offer.accept)
    await offers.change(gone, Offer.delete)
    assert (await offers.document(moved))["due"] == "2026-03-01T12:30:00Z"
    for name in (cancelled, accepted, gone):
        assert "due" not in await offers.document(name)
    assert await offers.instance().fire_due() == 0
    offers.now = LATER
    assert await offers.instance().fire_due() == 1
    assert await offers.history(moved) == ["OfferMade", "OfferExtended", "expired"]
    assert await offers.history(accepted) == ["OfferMade", "accepted"]


async def test_accepted_while_it_is_met_it_does_not_run_out(offers: Offers) -> None:
    """``at_its_version``: the deadline has read an open offer."""
    name = await offers.made()
    container = Meets(offers.client, *offers.names)
    container.fate = offers.fate
    await container.renew_token(name)  # so that the first read sees the offer
    container.before = lambda: offers.change(name, Offer.accept)
    writes = offers.fate.writes
    assert await offers.instance(container=container).fire_due() == 0
    assert offers.fate.writes > writes, "it was tried"
    assert await offers.history(name) == ["OfferMade", "accepted"]


async def test_met_while_it_is_accepted_it_takes_no_acceptance(offers: Offers) -> None:
    name, tried = await offers.made(), list[int]()

    def accept(offer: Offer) -> None:
        offer.accept()
        tried.append(offer.state.last_sequence)

    container = Meets(offers.client, *offers.names)
    container.fate = no_loss()
    await container.renew_token(name)

    async def meet() -> None:
        assert await offers.instance().fire_due() == 1

    container.before = meet
    with pytest.raises(Refused, match="expired"):
        await aggregates_over(container).change(Offer, name, accept, Origin("test"))
    assert tried == [1]
    assert await offers.history(name) == ["OfferMade", "expired"]


async def test_what_the_search_found_is_a_hint_and_the_state_decides(
    offers: Offers, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await offers.made()
    instance = offers.instance()
    pages = [page async for page in instance.pages(NOON)]
    assert [each.id for page in pages for each in page] == [name]
    await offers.change(name, lambda offer: offer.extend(LATER))
    etag = (await offers.document(name))["_etag"]

    async def old(*_: object) -> AsyncIterator[Any]:
        for page in pages:
            yield page

    monkeypatch.setattr(Deadlines, "pages", old)  # an index that lags
    assert await instance.fire_due() == 0
    assert (await offers.document(name))["_etag"] == etag, "nothing was written"
    assert await offers.history(name) == ["OfferMade", "OfferExtended"]


async def test_a_rule_that_was_made_later_corrects_what_is_stored(offers: Offers) -> None:
    name = await offers.made()
    assert await offers.instance(PatientOffer).fire_due() == 0
    document = await offers.document(name)
    assert "due" not in document
    assert (document["data"]["lastSequence"], document["ttl"]) == (1, -1)
    assert await offers.instance(PatientOffer).fire_due() == 0
    assert (await offers.document(name))["_etag"] == document["_etag"]
    assert await offers.history(name) == ["OfferMade"]


async def test_a_correction_writes_over_no_change_that_was_made_before(offers: Offers) -> None:
    """``at_its_version``: an offer is accepted between the correction's reading and its write."""
    name = await offers.made()
    container = Meets(offers.client, *offers.names)
    container.fate = no_loss()
    container.before = lambda: offers.change(name, Offer.accept)
    assert await offers.instance(PatientOffer, container).fire_due() == 0
    data = (await offers.document(name))["data"]
    assert (data["closedAs"], data["lastSequence"]) == ("accepted", 2)


async def test_a_round_that_could_not_look_says_nothing_of_what_is_due(
    offers: Offers, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    await offers.made(NOON - timedelta(seconds=90), name="broken-1")
    instance = offers.instance()
    await instance.fire_due()

    def away(*_: Any) -> AsyncIterator[Sequence[Any]]:
        raise Throttled("later", retry_after_seconds=1)

    monkeypatch.setattr(Deadlines, "pages", away)
    with pytest.raises(Throttled):
        await instance.fire_due()
    assert (recorded.gauge("outbox.due.aggregates"), recorded.gauge("outbox.due.oldest")) == (1, 90.0)


@pytest.mark.parametrize("accepted", [False, True])
async def test_a_reactions_delayed_step_is_a_deadline_that_a_change_cancels(
    offers: Offers, accepted: bool
) -> None:
    """Stored in the reaction's own transaction, met when it is due, a year later."""
    name, container = str(uuid4()), offers.container()
    year = NOON + timedelta(days=365)

    def make(offer: Offer | None, event: Event) -> Offer | None:
        if offer is None:
            return Offer.make(None, name)
        offer.extend(year)  # the three lines of a reaction that is due later: state, due, on_due
        return None

    lifetimes, order = Lifetimes(600, 600, int(LIVES.total_seconds())), InOrder.ANY
    reactions = CosmosReactions(container, Offer, "later", order, lifetimes, OnCommit())
    inbox = ReactionInbox(reactions, lambda _: name, make)
    first, second = message_for(name, "a"), message_for(name, "b", 2)
    for message in (first, second, first, second):
        await inbox.handle(message)
    document = await offers.document(name)
    assert document["due"] == "2027-03-01T12:00:00Z"
    offers.now = year - SECOND
    assert await offers.instance().fire_due() == 0
    if accepted:
        await offers.change(name, Offer.accept)
    offers.now = year
    await offers.until_met()
    ends = "accepted" if accepted else "expired"
    assert await offers.history(name) == ["OfferMade", "OfferExtended", ends]


async def test_one_that_cannot_be_met_holds_up_no_other_and_is_logged(
    offers: Offers, caplog: pytest.LogCaptureFixture, recorded: Recorded
) -> None:
    broken = await offers.made(NOON - timedelta(seconds=90), name="broken-1")
    sound = await offers.made()
    instance = offers.instance()
    assert await instance.fire_due() == 1
    assert await offers.history(sound) == ["OfferMade", "expired"]
    assert caplog.messages.count("offer broken-1 is due, but could not be handled: RuntimeError") == 1
    assert "failed on" not in caplog.text
    assert (recorded.gauge("outbox.due.aggregates"), recorded.gauge("outbox.due.oldest")) == (1, 90.0)
    assert await instance.fire_due() == 0
    assert caplog.text.count("could not be handled") == 1, "it rests"
    offers.monotonic += 301
    assert await instance.fire_due() == 0
    assert caplog.text.count("could not be handled") == 2
    await offers.change(broken, Offer.accept)
    offers.monotonic += 301
    await instance.fire_due()
    assert (recorded.gauge("outbox.due.aggregates"), recorded.gauge("outbox.due.oldest")) == (0, 0.0)


async def test_an_offer_that_stays_due_is_logged_as_a_bug(
    offers: Offers, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Offer, "forgets", True)
    name = await offers.made()
    assert await offers.instance().fire_due() == 0
    assert "Offer.on_due changed nothing of when it is due" in caplog.text
    assert await offers.history(name) == ["OfferMade"]


async def test_a_throttled_store_ends_the_round_and_the_next_one_goes_on(
    offers: Offers, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [await offers.made() for _ in range(10)]
    container = offers.container()

    async def throttled(*_: Any) -> list[str]:
        raise StoreFailed(Failure(Kind.THROTTLED, "429"))

    with monkeypatch.context() as patch:
        patch.setattr(container, "execute", throttled)
        with pytest.raises(Throttled):
            await offers.instance(container=container).fire_due()
    assert await offers.instance(container=container).fire_due() == len(names)


@pytest.mark.parametrize(
    "due",
    [
        datetime(2026, 3, 1),  # noqa: DTZ001 - the mistake under test
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-5))),
    ],
)
async def test_a_time_that_cannot_be_stored_is_refused_and_nothing_is_stored(
    offers: Offers, due: datetime
) -> None:
    class Odd(Offer):
        @property
        def due(self) -> datetime | None:
            return due

    with pytest.raises(Unpublishable, match=r"Odd\.due is no time that can be stored"):
        await offers.aggregates().create(Odd.make(), Origin("test"))


def test_when_and_what_are_declared_together() -> None:
    with pytest.raises(TypeError, match="write both, or neither"):

        class _Half(Heap):
            @property
            def due(self) -> datetime | None:
                return NOON


async def test_nothing_is_looked_for_where_nothing_can_be_due(offers: Offers) -> None:
    container = offers.container()
    assert deadlines_of([Heap], container, aggregates_over(container)) is None
    assert deadlines_of([Heap, Offer], container, aggregates_over(container)) is not None
