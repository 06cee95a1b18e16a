"""The use cases over an in-memory store: what is written, what is refused, and which writer wins a race."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import pytest

from cosmos_outbox.cosmos.aggregates.aggregates import ATTEMPTS, Aggregates
from cosmos_outbox.cosmos.aggregates.unit_of_work import CosmosUnitOfWork, Lifetimes
from cosmos_outbox.cosmos.store.container import Container, Write
from cosmos_outbox.cosmos.store.partition_key import Item, Key
from cosmos_outbox.http.validation import validated
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.outbox.aggregate import LONGEST_REQUEST_SECONDS, ETag, KeyedRequest, Receipt
from cosmos_outbox.outbox.errors import ConcurrentChange, PreconditionFailed
from domain.contact import Contact
from domain.values import ContactDetails
from tests.support.contacts import DETAILS_JSON, LATER, ORIGIN
from tests.support.contacts_http import revised
from tests.support.memory import MemoryStore, memory_store
from tests.support.use_cases import Contacts
from tests.support.virtual_time import in_virtual_time


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    async with memory_store() as made:
        yield made


def service(store: MemoryStore) -> Contacts:
    return Contacts(Aggregates(store, store.claims), clock=lambda: LATER, new_id=uuid4)


def key(contact_id: UUID) -> AggregateKey:
    return AggregateKey("contact", str(contact_id))


async def patched(
    store: MemoryStore, contact_id: UUID, patch: dict[str, Any], *, if_match: Sequence[ETag] = ()
) -> Receipt[Contact]:
    """A contact with a merge patch applied, as the HTTP function asks for it."""
    return await service(store).revise(
        contact_id, lambda details: revised(details, patch), ORIGIN, if_match=if_match
    )


async def create(store: MemoryStore) -> UUID:
    receipt = await service(store).create(validated(ContactDetails, DETAILS_JSON), ORIGIN)
    return receipt.aggregate.id


async def described(store: MemoryStore, contact_id: UUID, number: int, *, keyed: bool) -> None:
    """The contact as one of several writers changes it."""

    def revision(details: ContactDetails) -> ContactDetails:
        return revised(details, {"description": f"by {number}"})

    if keyed:
        request = KeyedRequest("anybody", f"key {number}", f"fingerprint {number}")
        await service(store).revise_once(contact_id, revision, ORIGIN, request)
    else:
        await service(store).revise(contact_id, revision, ORIGIN)


def actions(store: MemoryStore) -> list[tuple[str, int | None]]:
    return [(event.action, event.sequence) for event in store.events]


async def test_a_patch_of_three_properties_is_three_events_in_one_commit(store: MemoryStore) -> None:
    contact_id = await create(store)
    patch = {"name": {"firstName": "Jane"}, "email": "jane@contoso.com", "company": {"city": "Bergen"}}

    receipt = await patched(store, contact_id, patch)

    assert receipt.events == 3
    assert actions(store)[1:] == [
        ("ContactNameUpdatedEvent", 2),
        ("ContactEmailUpdatedEvent", 3),
        ("ContactCompanyUpdatedEvent", 4),
    ]
    company = store.events[-1].data["company"]
    assert (company["companyName"], company["city"], company["street"]) == ("Contoso", "Bergen", "Main St")
    assert receipt.aggregate.state.name.last_name == "Doe"


class RivalsFirst(Container):
    """Before each of the first ``losses`` commits, another writer changes the contact."""

    losses = 0

    async def execute(self, partition_key: Key, writes: Sequence[Write]) -> list[str]:
        if self.losses:
            left, self.losses = self.losses - 1, 0
            async with CosmosUnitOfWork(self, "test", ORIGIN, Lifetimes(600, 600)) as work:
                rival = (await work.get(Contact, str(partition_key))).aggregate
                rival.describe(f"rival {left}", at=LATER)
                await work.commit()
            self.losses = left
        return await super().execute(partition_key, writes)


@asynccontextmanager
async def contested(
    kind: type[RivalsFirst] = RivalsFirst,
) -> AsyncIterator[tuple[MemoryStore, RivalsFirst]]:
    async with memory_store(kind) as made:
        assert isinstance(made.container, RivalsFirst)
        yield made, made.container


def test_a_lost_race_is_run_again_from_what_the_winner_left() -> None:
    async def story() -> None:
        async with contested() as (store, rivals):
            contact_id = await create(store)
            rivals.losses = ATTEMPTS - 1

            receipt = await patched(store, contact_id, {"name": {"firstName": "Jane"}})

            assert receipt.aggregate.state.name.first_name == "Jane"
            assert receipt.aggregate.state.description == "rival 0"
            assert [event.sequence for event in store.events] == list(range(1, ATTEMPTS + 2))

    in_virtual_time(story())


def test_a_caller_that_loses_every_race_gets_a_conflict() -> None:
    async def story() -> None:
        async with contested() as (store, rivals):
            contact_id = await create(store)
            rivals.losses = ATTEMPTS

            with pytest.raises(ConcurrentChange):
                await patched(store, contact_id, {"name": {"firstName": "Jane"}})

            assert store.data(key(contact_id))["name"]["firstName"] == "John"

    in_virtual_time(story())


class Slow(RivalsFirst):
    """Each read takes a second, and another writer, for whom it takes none, wins each race."""

    async def read_with_age(self, item_id: str, partition_key: Key) -> tuple[Item, float] | None:
        if self.losses:
            await asyncio.sleep(1)
        return await super().read_with_age(item_id, partition_key)


@pytest.mark.parametrize("keyed", [False, True])
def test_who_loses_each_race_at_a_slow_store_is_answered_in_ten_seconds(keyed: bool) -> None:
    async def story() -> None:
        async with contested(Slow) as (store, rivals):
            contact_id = await create(store)
            rivals.losses = 100
            begun = monotonic()

            with pytest.raises(ConcurrentChange):
                await described(store, contact_id, 1, keyed=keyed)

            assert monotonic() - begun < 10

    in_virtual_time(story())


class Far(Container):
    """Each call takes as long as one of a store in the same region."""

    async def read_with_age(self, item_id: str, partition_key: Key) -> tuple[Item, float] | None:
        await asyncio.sleep(0.004)
        return await super().read_with_age(item_id, partition_key)

    async def execute(self, partition_key: Key, writes: Sequence[Write]) -> list[str]:
        await asyncio.sleep(0.008)
        return await super().execute(partition_key, writes)


@pytest.mark.parametrize("keyed", [pytest.param(False, marks=pytest.mark.long), True])
def test_many_writers_at_once_all_get_their_turn(keyed: bool) -> None:
    """Those that lost a race together do not meet in the next one."""

    async def story() -> None:
        async with memory_store(Far) as store:
            contact_id, writers = await create(store), 25

            async def describe(number: int) -> None:
                await described(store, contact_id, number, keyed=keyed)

            begun = monotonic()
            answers = await asyncio.gather(*map(describe, range(writers)), return_exceptions=True)
            assert [answer for answer in answers if answer is not None] == []
            assert [event.sequence for event in store.events] == list(range(1, writers + 2))
            assert monotonic() - begun < LONGEST_REQUEST_SECONDS / 3

    in_virtual_time(story())


async def test_a_pinned_version_gets_no_second_attempt() -> None:
    async with contested() as (store, rivals):
        contact_id = await create(store)
        etag = store.etag(key(contact_id))
        rivals.losses = 1
        with pytest.raises(PreconditionFailed):
            await patched(store, contact_id, {"name": {"firstName": "Jane"}}, if_match=[etag])
        assert store.data(key(contact_id))["name"]["firstName"] == "John"
