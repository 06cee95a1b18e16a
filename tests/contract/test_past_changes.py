"""What changed of a contact is told from the store and, once it expired there, from the archive, each change once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest

from cosmos_outbox.cosmos.aggregates.past_changes import CosmosPastChanges, EventsQuery
from cosmos_outbox.cosmos.store.container import Container, StoreFailed
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.cosmos.store.item import Item
from cosmos_outbox.cosmos.store.partition_key import Key
from cosmos_outbox.cosmos.store.writes import Write
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.lists import continuation
from cosmos_outbox.outbox.aggregates import Aggregates
from cosmos_outbox.outbox.archive import Archiver
from cosmos_outbox.outbox.archive_index import ArchiveIndex
from cosmos_outbox.outbox.errors import Throttled, Unavailable, UnknownContinuation
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.outbox.originals import AsDelivered
from cosmos_outbox.outbox.past_changes import PastPage
from cosmos_outbox.testing.simulation.archive import SimulatedArchive
from domain.contact import Contact
from domain.values import ContactDetails
from tests.contract.conftest import CosmosStore
from tests.support.contacts import DETAILS, LATER, ORIGIN
from tests.support.feed import EVENTS
from tests.support.short_pages import shorten_pages
from tests.support.use_cases import Contacts


@dataclass
class Past:
    """One contact, and whoever reads what changed."""

    store: CosmosStore
    contact: Contact
    archive: SimulatedArchive = field(default_factory=SimulatedArchive)

    async def change(self, *descriptions: str) -> None:
        for each in descriptions:
            wanted = partial(ContactDetails.model_copy, update={"description": each})
            self.contact = (await self.contacts.revise(self.contact.id, wanted, ORIGIN)).aggregate

    @property
    def contacts(self) -> Contacts:
        return Contacts(Aggregates(self.store.open, self.store.claims), clock=lambda: LATER, new_id=uuid4)

    async def events(self) -> list[OutboxEvent]:
        return await self.store.events(self.contact.key)

    async def archived(self, *sequences: int) -> None:
        archiver = Archiver(self.archive, AsDelivered(), ArchiveIndex(self.archive))
        for each in await self.events():
            if each.sequence in sequences:
                await archiver.keep([each])

    async def expire(self, *sequences: int) -> None:
        for each in await self.events():
            if each.sequence in sequences:
                await self.store.container.execute(self.contact.aggregate_id, [Write.delete(each.id)])

    async def page(
        self,
        size: int = 100,
        token: str | None = None,
        *,
        container: Container | None = None,
        archive: bool = True,
    ) -> PastPage:
        index = ArchiveIndex(self.archive) if archive else None
        reader = CosmosPastChanges(container or self.store.container, EVENTS, "test", index)
        return await reader.page(self.contact.key, self.contact.state.last_sequence, size, token)

    async def walked(self, size: int) -> list[PastPage]:
        pages = [await self.page(size)]
        while pages[-1].continuation_token:
            pages.append(await self.page(size, pages[-1].continuation_token))
        return pages


def places(*pages: PastPage) -> list[int | None]:
    return [each.sequence for page in pages for each in page.events]


@pytest.fixture
async def past(cosmos_store: CosmosStore) -> Past:
    contacts = Contacts(Aggregates(cosmos_store.open, cosmos_store.claims), clock=lambda: LATER, new_id=uuid4)
    made = (await contacts.create(DETAILS, ORIGIN)).aggregate
    past = Past(cosmos_store, made)
    await past.change("2", "3", "4", "5", "6")
    return past


async def test_pages_of_the_store_lead_down_to_the_creation_and_cost_no_fence(past: Past) -> None:
    before = past.store.container.fences
    pages = await past.walked(4)
    assert [places(each) for each in pages] == [[6, 5, 4, 3], [2, 1]]
    assert [each.sequence for each in pages[0].earlier] == [2, 1]
    assert [each.complete_from for each in pages] == [3, 1]
    assert past.store.container.fences == before


async def test_while_the_store_has_all_events_the_archive_is_not_asked(past: Past) -> None:
    asked = list[str]()

    async def names(prefix: str) -> list[str]:
        asked.append(prefix)
        return []

    past.archive.names = names  # type: ignore[method-assign]  # a list of names is what an archive charges for
    assert [places(each) for each in await past.walked(4)] == [[6, 5, 4, 3], [2, 1]]
    assert asked == []


def test_a_store_in_memory_finds_by_the_same_rule_as_the_query() -> None:
    """What is found beyond it would count as one of the most that are asked for."""
    event = {"id": "3", "type": "domainEvent", "data": {"sequence": 3}}
    others: list[Item] = [
        {"id": "9", "type": "domainEvent", "data": {"sequence": 9}},
        {"id": "c", "type": "contact", "data": {"sequence": 3}},
        {"id": "r", "type": "request"},
    ]
    query = EventsQuery(AggregateKey("contact", "c"), range(1, 5), "c.partitionKey = @id")
    assert query.among([event, *others]) == [event]


async def test_a_page_of_the_store_that_ends_early_loses_nothing(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_pages(monkeypatch)
    assert places(await past.page()) == [6, 5, 4, 3, 2, 1]


async def test_without_an_archive_the_history_begins_with_what_is_still_stored(past: Past) -> None:
    await past.expire(1, 2, 3)
    page = await past.page(archive=False)
    assert (places(page), page.complete_from, page.continuation_token) == ([6, 5, 4], 4, None)
    assert (await past.page(2, archive=False)).complete_from == 5


async def test_what_has_expired_is_told_from_the_archive_and_each_event_once(past: Past) -> None:
    await past.archived(1, 2, 3, 4, 5)
    await past.expire(1, 2, 3)  # 4 and 5 are in both
    fences = past.store.container.fences
    for size in (1, 2, 4, 100):
        pages = await past.walked(size)
        assert places(*pages) == [6, 5, 4, 3, 2, 1]
        assert pages[-1].complete_from == 1
    assert past.store.container.fences == fences, "nothing was missing"
    events = (await past.page()).events
    assert [each.data.get("description") for each in events[:-1]] == ["6", "5", "4", "3", "2"]
    assert events[-1].data["contact"]["email"] == past.contact.state.email


async def test_an_archive_with_a_hole_is_told_down_to_the_hole(past: Past) -> None:
    await past.archived(1, 3, 4)
    await past.expire(1, 2, 3, 4)
    page = await past.page()
    assert (places(page), page.complete_from, page.continuation_token) == ([6, 5, 4, 3], 3, None)


async def test_an_archive_of_many_blobs_is_read_a_few_a_page(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cosmos_outbox.outbox.archive_index.MOST_BLOBS", 2)
    await past.archived(1, 2, 3, 4, 5)
    await past.expire(1, 2, 3, 4, 5)
    pages = await past.walked(100)
    assert [places(each) for each in pages] == [[6, 5, 4], [3, 2], [1]]
    assert [each.complete_from for each in pages] == [4, 2, 1]


async def test_what_expires_between_two_looks_is_found_in_the_archive(past: Past) -> None:
    """The store is looked at first: what it does not show any more was archived before."""
    await past.archived(1, 2, 3, 4, 5, 6)
    names = past.archive.names

    async def late(prefix: str) -> list[str]:
        await past.expire(1, 2, 3, 4, 5, 6)
        return await names(prefix)

    await past.expire(1)
    past.archive.names = late  # type: ignore[method-assign]  # the moment between
    assert places(await past.page()) == [6, 5, 4, 3, 2, 1]


class Lagging(Container):
    """Another instance, whose replica shows events up to ``last`` until this process has a session token."""

    last: int = 0

    async def first(
        self, query: str, parameters: Mapping[str, Any], most: int, *, partition_key: Key | None = None
    ) -> list[Item]:
        found = await super().first(query, parameters, most, partition_key=partition_key)
        if partition_key is not None and self.seen(partition_key) is None:
            return [each for each in found if each["data"]["sequence"] <= self.last]
        return found


@pytest.mark.parametrize("last", [0, 3, 5])
@pytest.mark.parametrize("archived", [(), (1, 2), (1, 2, 3, 4, 5, 6)])
async def test_a_replica_that_lags_hides_nothing(past: Past, last: int, archived: Sequence[int]) -> None:
    await past.archived(*archived)
    await past.expire(*(each for each in archived if each < 3))
    lagging = Lagging(past.store.container._client, *past.store.names)
    lagging.last = last
    page = await past.page(container=lagging)
    assert (places(page), page.complete_from) == ([6, 5, 4, 3, 2, 1], 1)
    assert lagging.fences == (0 if len(archived) == 6 else 1)


async def test_events_of_others_in_the_partition_and_what_is_no_event_are_not_told(past: Past) -> None:
    foreign, broken = str(uuid4()), str(uuid4())
    for item_id, aggregate, data in (
        (foreign, str(UUID(int=7)), {"id": foreign, "description": "another's"}),
        (broken, past.contact.aggregate_id, {"id": "another id", "description": "broken"}),
    ):
        whole = {"action": "X", "sequence": 3, "createdAt": "2026-03-01T12:00:00Z"} | data
        item = {
            "id": item_id, "partitionKey": past.contact.aggregate_id, "type": "domainEvent",
            "aggregateType": "contact", "aggregateId": aggregate, "data": whole,
        }  # fmt: skip
        await past.store.container.execute(past.contact.aggregate_id, [Write.create(item)])
    page = await past.page()
    assert places(page) == [6, 5, 4, 3, 2, 1]
    assert page.events[3].data["description"] == "3"


@pytest.mark.parametrize("token", ["x", "bm90IG9uZXM", ""])
async def test_a_token_that_is_none_is_refused(past: Past, token: str) -> None:
    with pytest.raises(UnknownContinuation):
        await past.page(2, token)


def forged(past: Past, text: str) -> str:
    """Whoever knows the list's name can seal anything."""
    return continuation.seal(f"test/past of {past.contact.key}", text)


@pytest.mark.parametrize("text", ["x", "0", "-2", "07", "2.0", "9" * 16])
async def test_a_token_that_somebody_made_for_the_history_is_refused(past: Past, text: str) -> None:
    with pytest.raises(UnknownContinuation):
        await past.page(2, forged(past, text))


async def test_a_token_from_before_the_store_was_put_back_leads_to_the_newest_event(past: Past) -> None:
    """It names a place that there is no more."""
    assert places(await past.page(2, forged(past, "9"))) == [6, 5]


class Failing(Container):
    """Fails at the read after so many."""

    left: int = 0
    kind = Kind.BEHIND

    async def first(
        self, query: str, parameters: Mapping[str, Any], most: int, *, partition_key: Key | None = None
    ) -> list[Item]:
        if self.left == 0:
            raise StoreFailed(Failure(self.kind, "on purpose"))
        self.left -= 1
        return await super().first(query, parameters, most, partition_key=partition_key)


@pytest.mark.parametrize("left", [0, 1])
@pytest.mark.parametrize(("kind", "error"), [(Kind.BEHIND, Unavailable), (Kind.THROTTLED, Throttled)])
async def test_a_store_that_fails_at_either_look_is_away(
    past: Past, left: int, kind: Kind, error: type[Exception]
) -> None:
    await past.expire(1)
    failing = Failing(past.store.container._client, *past.store.names)
    failing.left, failing.kind = left, kind
    with pytest.raises(error):
        await past.page(container=failing)


async def test_while_the_archive_is_away_nothing_is_told_for_the_whole(past: Past) -> None:
    await past.archived(1, 2, 3)
    await past.expire(1, 2, 3)

    async def away(*_: object) -> Any:
        raise Unavailable("on purpose")

    for call in ("names", "read"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(past.archive, call, away)
            with pytest.raises(Unavailable):
                await past.page()
    assert places(await past.page()) == [6, 5, 4, 3, 2, 1]
