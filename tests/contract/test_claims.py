"""A key stands for the first claim until that expires, and a claim is used only while it has life enough left."""

import asyncio
from collections.abc import Sequence
from uuid import UUID

import pytest

from cosmos_outbox.cosmos.aggregates.idempotency import CosmosClaims, KeyReservation
from cosmos_outbox.cosmos.store.container import Container, StoreFailed, Write
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.cosmos.store.partition_key import Item, Key
from cosmos_outbox.outbox.aggregate import LONGEST_REQUEST_SECONDS
from cosmos_outbox.outbox.errors import Unavailable
from cosmos_outbox.settings.errors import Misconfigured
from devstack.testing import eventually
from tests.contract.conftest import CosmosStore
from tests.support.emulators import Gap


async def test_the_first_claim_decides_the_id_and_the_request(store: CosmosStore) -> None:
    made = await store.claims.claim("key", "one")
    found = await store.claims.claim("key", "two")
    assert (made.fingerprint, made.lifetime_seconds, made.is_new) == ("one", 600, True)
    assert (found.fingerprint, found.lifetime_seconds, found.is_new) == ("one", 600, False)
    assert found.aggregate_id == made.aggregate_id
    assert (await store.claims.claim("another", "one")).aggregate_id != made.aggregate_id


async def test_a_claim_made_or_found_is_usable_for_the_longest_request(
    store: CosmosStore,
) -> None:
    for _ in range(2):
        before = asyncio.get_running_loop().time()
        claim = await store.claims.claim("key", "f")
        after = asyncio.get_running_loop().time()
        assert before + LONGEST_REQUEST_SECONDS <= claim.usable_until <= after + LONGEST_REQUEST_SECONDS


async def test_a_claim_about_to_expire_is_not_used_and_an_expired_one_is_remade(store: CosmosStore) -> None:
    store.make_claims_short()
    first = await store.claims.claim("key", "f")
    with pytest.raises(Unavailable, match="about to expire") as caught:
        await store.claims.claim("key", "f")
    assert 0 < caught.value.retry_after_seconds <= 4

    async def again() -> UUID | None:
        try:
            return (await store.claims.claim("key", "f")).aggregate_id
        except Unavailable:
            return None

    assert await eventually(again) != first.aggregate_id


class Faulty(Container):
    """Refuses creations, loses answers to them, and reads as the test asks."""

    refused = 0
    lost = 0
    reads: list[tuple[Item, float] | None]

    async def execute(self, partition_key: Key, writes: Sequence[Write]) -> list[str]:
        if self.refused:
            self.refused -= 1
            raise StoreFailed(Failure(Kind.CONFLICT, "injected: a claim that is about to expire"))
        stored = await super().execute(partition_key, writes)
        if self.lost:
            self.lost -= 1
            raise StoreFailed(Failure(Kind.PASSING, "injected: the answer was lost"))
        return stored

    async def read_with_age(self, item_id: str, partition_key: Key) -> tuple[Item, float] | None:
        return self.reads.pop(0) if self.reads else await super().read_with_age(item_id, partition_key)


@pytest.fixture
async def faulty(store: CosmosStore) -> Faulty:
    container: Faulty = store.claim_container  # type: ignore[assignment]  # it becomes one in the next line
    container.__class__ = Faulty
    container.reads = []
    return container


async def claim(faulty: Faulty) -> KeyReservation:
    return await CosmosClaims(faulty, 600).claim("key", "f")


async def test_a_claim_whose_answer_was_lost_is_the_claim_of_the_repetition(faulty: Faulty) -> None:
    faulty.lost = 1
    with pytest.raises(Unavailable):
        await claim(faulty)
    found = await faulty.read("key", "key")
    assert found is not None
    assert str((await claim(faulty)).aggregate_id) == found["data"]["aggregateId"]


async def test_a_claim_that_expires_between_refusal_and_read_is_made_again(faulty: Faulty) -> None:
    faulty.refused = 1
    assert (await claim(faulty)).is_new


async def test_each_creation_of_a_claim_has_an_id_of_its_own(faulty: Faulty) -> None:
    """The claim that has just expired may be this request's own, and its id may be taken."""
    ids: list[str] = []

    async def refuse(partition_key: Key, writes: Sequence[Write]) -> list[str]:
        assert partition_key == "key"
        ids.append(writes[0].item["data"]["aggregateId"])
        raise StoreFailed(Failure(Kind.CONFLICT, "injected"))

    faulty.execute = refuse  # type: ignore[method-assign]  # a fault, injected
    with pytest.raises(Unavailable):
        await claim(faulty)
    assert len(set(ids)) == 2


async def test_a_second_conflict_without_a_claim_raises_unavailable(faulty: Faulty) -> None:
    await claim(faulty)
    faulty.reads = [None, None]
    with pytest.raises(Unavailable, match="expired at this moment"):
        await claim(faulty)
    assert faulty.reads == []


async def test_the_life_left_is_reckoned_by_the_services_clock(faulty: Faulty) -> None:
    await claim(faulty)
    found = await faulty.read_with_age("key", "key")
    assert found is not None
    for age in (0.0, 569.0):
        faulty.reads = [(found[0], age)]
        await claim(faulty)
    for age in (569.5, 10_000.0):
        faulty.reads = [(found[0], age)]
        with pytest.raises(Unavailable) as caught:
            await claim(faulty)
        assert caught.value.retry_after_seconds == max(0, 599 - age) + 2


async def test_under_a_claim_that_outlives_a_lowered_setting_nothing_is_sent(faulty: Faulty) -> None:
    """The claim lives for 600 s, and what is made under it now for 100: it may be gone while the claim is there."""
    made = await claim(faulty)
    found = await faulty.read_with_age("key", "key")
    assert found is not None
    for age in (0.0, 69.0, 69.5, 300.0):
        faulty.reads = [(found[0], age)]
        again = await CosmosClaims(faulty, 100).claim("key", "f")
        assert again.aggregate_id == made.aggregate_id
        assert (again.usable_until > asyncio.get_running_loop().time()) is (age <= 69)


async def test_the_age_of_an_item_is_the_time_since_it_was_written(faulty: Faulty) -> None:
    await claim(faulty)

    async def older() -> float | None:
        found = await faulty.read_with_age("key", "key")
        assert found is not None
        assert 0 <= found[1] < 10
        return found[1] or None

    assert await eventually(older)


@pytest.mark.known_gap(Gap.SESSION_TOKEN_IGNORED)
async def test_the_refusal_of_a_claim_makes_its_read_see_the_claim(store: CosmosStore) -> None:
    """Another instance has no session of its own; the token of its refusal is what it reads with."""
    made = await store.claims.claim("key", "f")
    elsewhere = Container(store.container._client, *store.claim_names)
    await CosmosClaims(elsewhere, 600).claim("key", "f")
    assert elsewhere._sessions.get("key") is not None
    assert elsewhere.renewals == 0
    assert (await CosmosClaims(elsewhere, 600).claim("key", "f")).aggregate_id == made.aggregate_id


async def test_without_the_container_the_deployment_is_said_to_be_wrong(store: CosmosStore) -> None:
    missing = Container(store.container._client, store.names[0], "not-there")
    with pytest.raises(Misconfigured, match=r"container not-there of database .* does not exist"):
        await CosmosClaims(missing, 600).claim("key", "f")
