"""A creation that is repeated with the same key happens once, and a repetition gets the first answer.

What happens when processes die and answers get lost: ``test_lost_keys.py``.
"""

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from cosmos_outbox.cosmos.aggregates.aggregates import Aggregates
from cosmos_outbox.cosmos.aggregates.documents import request_id
from cosmos_outbox.cosmos.aggregates.idempotency import CosmosClaims
from cosmos_outbox.cosmos.aggregates.unit_of_work import Lifetimes
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.aggregate import KeyedRequest, Receipt
from cosmos_outbox.outbox.errors import (
    AggregateNotFound,
    AnswerErased,
    ChangeTooLarge,
    IdempotencyKeyReused,
    Unavailable,
)
from devstack.testing import eventually
from domain.contact import Contact
from domain.values import Name
from tests.contract.conftest import CosmosStore
from tests.support.contacts import DETAILS, LATER, ORIGIN
from tests.support.emulators import Gap
from tests.support.use_cases import Contacts

JANE = Name(first_name="Jane", last_name="Doe")
REQUEST = KeyedRequest("caller-1", "order-1", "a-body")


def service(store: CosmosStore) -> Contacts:
    return Contacts(Aggregates(store.open, store.claims), clock=lambda: LATER, new_id=uuid4)


async def create(store: CosmosStore, request: KeyedRequest = REQUEST) -> tuple[Receipt[Contact], bool]:
    return await service(store).create_once(DETAILS, ORIGIN, request)


async def one_contact(store: CosmosStore, *answers: tuple[Receipt[Contact], bool]) -> UUID:
    """The id of the one contact that all these answers are about; it was created once."""
    [contact_id] = {receipt.aggregate.id for receipt, _ in answers}
    events = await store.events(AggregateKey("contact", str(contact_id)))
    assert [event.action for event in events].count("ContactCreatedEvent") == 1
    return contact_id


async def test_a_repetition_gets_the_first_answer(store: CosmosStore) -> None:
    first, replayed = await create(store)
    again, again_replayed = await create(store)
    assert (replayed, again_replayed) == (False, True)
    assert again.aggregate.state == first.aggregate.state
    assert again.etag == first.etag
    assert len(await store.events(first.aggregate.key)) == 1


async def test_another_key_and_the_key_of_another_caller_is_another_contact(store: CosmosStore) -> None:
    others = [replace(REQUEST, key="order-2"), replace(REQUEST, caller="caller-2")]
    answers = [await create(store, each) for each in (REQUEST, *others)]
    assert [replayed for _, replayed in answers] == [False] * 3
    assert len({receipt.aggregate.id for receipt, _ in answers}) == 3


def test_no_two_callers_and_keys_have_one_claim() -> None:
    pairs = [("a", "b c"), ("a b", "c"), ("a ", "b"), ("a", " b"), ("", "ab"), ("ab", "")]
    assert len({KeyedRequest(caller, key, "").key_digest for caller, key in pairs}) == len(pairs)


async def test_another_body_under_the_same_key_is_refused(store: CosmosStore) -> None:
    first, _ = await create(store)
    with pytest.raises(IdempotencyKeyReused):
        await create(store, replace(REQUEST, fingerprint="another-body"))
    assert len(await store.events(first.aggregate.key)) == 1


async def test_a_repetition_is_known_by_its_bytes_and_not_by_their_meaning(
    store: CosmosStore,
) -> None:
    """A later version of the service may read the same body as another model."""
    first, _ = await create(store)
    understood = DETAILS.model_copy(update={"description": "a default of a later version"})
    again, replayed = await service(store).create_once(understood, ORIGIN, REQUEST)
    assert (again.aggregate.state, replayed) == (first.aggregate.state, True)


async def test_a_replayed_answer_is_the_first_one_without_its_outdated_etag(store: CosmosStore) -> None:
    first, _ = await create(store)
    await service(store).revise(
        first.aggregate.id, lambda details: details.model_copy(update={"name": JANE}), ORIGIN
    )
    again, replayed = await create(store)
    assert replayed
    assert again.aggregate.state.name == Name(first_name="John", last_name="Doe")
    assert again.etag is None


async def test_a_repeated_creation_does_not_bring_a_deleted_contact_back(store: CosmosStore) -> None:
    first, _ = await create(store)
    await service(store).delete(first.aggregate.id, ORIGIN)
    for _ in range(2):
        with pytest.raises(AnswerErased):
            await create(store)
    with pytest.raises(AggregateNotFound):
        await service(store).read(first.aggregate.id, ORIGIN)


@pytest.mark.known_gap(Gap.BATCH_NOT_ATOMIC)
async def test_of_several_at_once_one_creates_and_the_others_get_its_answer(store: CosmosStore) -> None:
    answers = await asyncio.gather(*(create(store) for _ in range(4)))
    assert [replayed for _, replayed in answers].count(False) == 1
    await one_contact(store, *answers)
    assert all(receipt.aggregate.state == answers[0][0].aggregate.state for receipt, _ in answers)


async def test_once_its_claim_has_expired_a_key_creates_anew(store: CosmosStore) -> None:
    store.make_claims_short()
    first, _ = await create(store)

    async def anew() -> Receipt[Contact] | None:
        try:
            receipt, replayed = await create(store)
        except Unavailable:  # the claim is about to expire
            return None
        return None if replayed else receipt

    second = await eventually(anew)
    assert second is not None
    assert second.aggregate.id != first.aggregate.id
    assert len(await store.events(first.aggregate.key)) == 1


class Huge(Contact):
    """A contact whose creation raises a hundred events."""

    def changes(self) -> Any:
        changes = super().changes()
        assert changes is not None
        return replace(changes, events=changes.events * 100)


async def test_a_request_refused_as_too_large_leaves_its_key_to_a_corrected_one(store: CosmosStore) -> None:
    def huge(contact_id: UUID) -> Huge:
        return Huge.create(DETAILS, at=LATER, id=contact_id)

    aggregates = Aggregates(store.open, store.claims)
    with pytest.raises(ChangeTooLarge):
        await aggregates.create_once(huge, REQUEST, ORIGIN)
    _, replayed = await create(store, replace(REQUEST, fingerprint="the corrected body"))
    assert not replayed


async def test_a_batch_stored_under_a_claim_is_no_larger_than_the_checked_one(
    store: CosmosStore, batch_sizes: list[int]
) -> None:
    """Else a request of just the limit would be claimed, and refused as too large."""
    await create(store)
    checked, committed = batch_sizes
    assert committed <= checked


async def test_what_is_stored_under_a_claim_lives_at_least_as_long(store: CosmosStore) -> None:
    """Also where the setting was lowered, or events are kept for a shorter time than keys."""
    store.claims = CosmosClaims(store.claim_container, 5000)
    store.lifetimes = Lifetimes(events=60, requests=600)
    receipt, _ = await create(store)
    contact_id = str(receipt.aggregate.id)
    record = await store.container.read(request_id(contact_id), contact_id)
    assert record is not None
    assert record["ttl"] == 5000
    await service(store).delete(receipt.aggregate.id, ORIGIN)
    tombstone = await store.container.read(contact_id, contact_id)
    assert tombstone is not None
    assert tombstone["ttl"] == 600


async def test_an_old_id_does_not_come_back_after_the_setting_was_lowered(store: CosmosStore) -> None:
    """The claim lives by the setting before, and outlives the tombstone and the erased record of the setting now."""
    receipt, _ = await create(store)
    store.claims = CosmosClaims(store.claim_container, 1)
    store.lifetimes = Lifetimes(events=1, requests=1)
    contact_id = str(receipt.aggregate.id)
    again, replayed = await create(store)
    assert (again.aggregate.state, replayed) == (receipt.aggregate.state, True)
    await service(store).delete(receipt.aggregate.id, ORIGIN)

    async def gone() -> bool:
        return await store.container.read(contact_id, contact_id) is None

    await eventually(gone)
    with pytest.raises(Unavailable, match="ran out of time"):
        await create(store)
    assert await store.container.read(contact_id, contact_id) is None


async def test_a_claim_holds_neither_the_caller_nor_the_key_nor_the_contact(
    store: CosmosStore,
) -> None:
    await create(store, KeyedRequest("a-caller", "a-key", "a-body"))
    items, _ = await store.claim_container.page("SELECT * FROM c", {}, 10, None)
    text = str(items)
    for secret in ("a-caller", "a-key", "a-body", "johndoe", "John"):
        assert secret not in text
