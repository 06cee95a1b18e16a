"""A creation that is repeated with the same key happens once, and a repetition gets the first answer.

The step before, the step after and the answer are lost, one at a time and together with an old read.
``tests/models/claims.py`` searches every order of such failures; here the code is shown to keep the model's rules.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from application.contacts import Contacts
from application.errors import ContactNotFound
from devstack.testing import eventually
from domain.contact import Contact
from domain.values import Name
from infra.cosmos import unit_of_work
from infra.cosmos.claims import CosmosClaims
from infra.cosmos.container import Container, StoreFailed, Write
from infra.cosmos.documents import Item, request_id
from infra.cosmos.errors import Failure, Kind
from outbox.aggregate import AggregateKey
from outbox.aggregates import Aggregates
from outbox.claims import Claim
from outbox.errors import (
    AnswerErased,
    ChangeTooLarge,
    IdempotencyKeyReused,
    OutcomeUnknown,
    Unavailable,
    Unpublishable,
)
from outbox.idempotency import KeyedRequest
from outbox.unit_of_work import Receipt
from tests.contract.conftest import CosmosStore, Store
from tests.support.contacts import DETAILS, LATER, ORIGIN
from tests.support.emulators import Gap

JANE = Name(first_name="Jane", last_name="Doe")
REQUEST = KeyedRequest("caller-1", "order-1", "a-body")


def service(store: Store) -> Contacts:
    return Contacts(Aggregates(store.open, store.claims), clock=lambda: LATER)


async def create(store: Store, request: KeyedRequest = REQUEST) -> tuple[Receipt[Contact], bool]:
    return await service(store).create_once(DETAILS, ORIGIN, request)


async def one_contact(store: Store, *answers: tuple[Receipt[Contact], bool]) -> UUID:
    """The id of the one contact that all these answers are about; it was created once."""
    [contact_id] = {receipt.aggregate.id for receipt, _ in answers}
    events = await store.events(AggregateKey("contact", str(contact_id)))
    assert [event.action for event in events].count("ContactCreatedEvent") == 1
    return contact_id


async def test_a_repetition_gets_the_first_answer(store: Store) -> None:
    first, replayed = await create(store)
    again, again_replayed = await create(store)
    assert (replayed, again_replayed) == (False, True)
    assert again.aggregate.state == first.aggregate.state
    assert again.etag == first.etag
    assert len(await store.events(first.aggregate.key)) == 1


@pytest.mark.parametrize("other", [replace(REQUEST, key="order-2"), replace(REQUEST, caller="caller-2")])
async def test_another_key_and_the_key_of_another_caller_is_another_contact(
    store: Store, other: KeyedRequest
) -> None:
    first, _ = await create(store)
    second, replayed = await create(store, other)
    assert not replayed
    assert first.aggregate.id != second.aggregate.id


def test_no_two_callers_and_keys_have_one_claim() -> None:
    pairs = [("a", "b c"), ("a b", "c"), ("a ", "b"), ("a", " b"), ("", "ab"), ("ab", "")]
    assert len({KeyedRequest(caller, key, "").key_digest for caller, key in pairs}) == len(pairs)


async def test_another_body_under_the_same_key_is_refused(store: Store) -> None:
    first, _ = await create(store)
    with pytest.raises(IdempotencyKeyReused):
        await create(store, replace(REQUEST, fingerprint="another-body"))
    assert len(await store.events(first.aggregate.key)) == 1


async def test_a_repetition_is_known_by_what_was_sent_and_not_by_what_was_understood(store: Store) -> None:
    """A later version of the service may read the same body as another model."""
    first, _ = await create(store)
    understood = DETAILS.model_copy(update={"description": "a default of a later version"})
    again, replayed = await service(store).create_once(understood, ORIGIN, REQUEST)
    assert (again.aggregate.state, replayed) == (first.aggregate.state, True)


async def test_the_first_answer_stays_what_it_was_but_claims_no_version_that_is_gone(store: Store) -> None:
    first, _ = await create(store)
    await service(store).revise(
        first.aggregate.id, lambda details: details.model_copy(update={"name": JANE}), ORIGIN
    )
    again, replayed = await create(store)
    assert replayed
    assert again.aggregate.state.name == Name(first_name="John", last_name="Doe")
    assert again.etag is None


async def test_once_the_contact_is_deleted_its_first_answer_is_gone_and_the_contact_stays_deleted(
    store: Store,
) -> None:
    first, _ = await create(store)
    await service(store).delete(first.aggregate.id, ORIGIN)
    for _ in range(2):
        with pytest.raises(AnswerErased):
            await create(store)
    with pytest.raises(ContactNotFound):
        await service(store).read(first.aggregate.id, ORIGIN)


@pytest.mark.known_gap(Gap.BATCH_NOT_ATOMIC)
@pytest.mark.parametrize("count", [2, 3, 10])
async def test_of_several_at_once_one_creates_and_the_others_get_its_answer(store: Store, count: int) -> None:
    answers = await asyncio.gather(*(create(store) for _ in range(count)))
    assert [replayed for _, replayed in answers].count(False) == 1
    await one_contact(store, *answers)
    assert all(receipt.aggregate.state == answers[0][0].aggregate.state for receipt, _ in answers)


async def test_once_its_claim_has_expired_a_key_creates_anew(store: Store) -> None:
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


async def test_a_request_that_is_refused_as_too_large_leaves_its_key_to_the_corrected_one(
    store: Store,
) -> None:
    def huge(contact_id: UUID) -> Huge:
        return Huge.create(DETAILS, at=LATER, contact_id=contact_id)

    aggregates = Aggregates(store.open, store.claims)
    with pytest.raises(ChangeTooLarge):
        await aggregates.create_once(huge, REQUEST, ORIGIN, before_claims=DETAILS)
    _, replayed = await create(store, replace(REQUEST, fingerprint="the corrected body"))
    assert not replayed


async def test_a_request_that_nobody_could_read_leaves_its_key_to_the_corrected_one(
    cosmos_store: CosmosStore,
) -> None:
    unreadable = DETAILS.model_copy(update={"description": "9999-12-31T24:00:00"})
    with pytest.raises(Unpublishable):
        await service(cosmos_store).create_once(unreadable, ORIGIN, REQUEST)
    _, replayed = await create(cosmos_store, replace(REQUEST, fingerprint="the corrected body"))
    assert not replayed


class Fragile(Container):
    """The container of the contacts. The next batches that create something meet what is told."""

    before: list[Callable[[], Awaitable[None]]]
    after: list[Callable[[], Awaitable[None]]]
    old_reads = 0
    """So many reads are answered by a replica that has seen nothing yet."""

    async def execute(self, partition_key: str, writes: Sequence[Write]) -> list[str]:
        is_creation = any(write.kind == "create" for write in writes)
        if is_creation and self.before:
            await self.before.pop(0)()
        etags = await super().execute(partition_key, writes)
        if is_creation and self.after:
            await self.after.pop(0)()
        return etags

    async def read(self, item_id: str, partition_key: str) -> Item | None:
        if self.old_reads and self._sessions.get(partition_key) is None:
            self.old_reads -= 1
            return None
        return await super().read(item_id, partition_key)


class Died(BaseException):
    """The process is gone: nothing of it runs on."""


async def die() -> None:
    raise Died


async def lose_the_answer() -> None:
    raise StoreFailed(Failure(Kind.PASSING, "injected", answer_lost=True))


def instance(store: CosmosStore) -> CosmosStore:
    """Another process: it has no session, and its replica may lag."""
    container = Fragile(store.container._client, *store.names)
    container.before, container.after = [], []
    return CosmosStore(container, *store.names)


def fragile(store: CosmosStore) -> Fragile:
    assert isinstance(store.container, Fragile)
    return store.container


@pytest.mark.parametrize("old_reads", [0, 1, 2])
async def test_a_crash_between_claim_and_transaction_leaves_the_id_to_the_repetition(
    cosmos_store: CosmosStore, old_reads: int
) -> None:
    first = instance(cosmos_store)
    fragile(first).before = [die]
    ids: list[UUID] = []

    class Noting:
        async def claim(self, key_digest: str, fingerprint: str) -> Claim:
            claim = await cosmos_store.claims.claim(key_digest, fingerprint)
            ids.append(claim.aggregate_id)
            return claim

    first.claims = Noting()
    with pytest.raises(Died):
        await create(first)
    second = instance(cosmos_store)
    fragile(second).old_reads = old_reads
    receipt, replayed = await create(second)
    assert (receipt.aggregate.id, replayed) == (ids[0], False)
    await one_contact(cosmos_store, (receipt, replayed))


@pytest.mark.known_gap(Gap.BATCH_NOT_ATOMIC)
@pytest.mark.parametrize("old_reads", [0, 1, 2])
@pytest.mark.parametrize("end", [die, lose_the_answer])
async def test_a_creation_whose_answer_never_came_is_found_by_its_repetition(
    cosmos_store: CosmosStore,
    monkeypatch: pytest.MonkeyPatch,
    end: Callable[[], Awaitable[None]],
    old_reads: int,
) -> None:
    first = instance(cosmos_store)
    fragile(first).after = [end]
    monkeypatch.setattr(unit_of_work, "PATIENCE_SECONDS", 0.0)
    with pytest.raises((Died, OutcomeUnknown)):
        await create(first)
    second = instance(cosmos_store)
    fragile(second).old_reads = old_reads
    receipt, replayed = await create(second)
    assert replayed
    assert receipt.etag is not None
    await one_contact(cosmos_store, (receipt, replayed))


@pytest.mark.known_gap(Gap.BATCH_NOT_ATOMIC)
async def test_a_creation_whose_answer_was_lost_and_that_was_overtaken_by_its_repetition_is_one(
    cosmos_store: CosmosStore,
) -> None:
    """The first process tries its transaction again and meets the repetition's contact."""
    first, second = instance(cosmos_store), instance(cosmos_store)
    overtaken: list[tuple[Receipt[Contact], bool]] = []

    async def overtake() -> None:
        overtaken.append(await create(second))
        raise StoreFailed(Failure(Kind.PASSING, "injected: never sent", answer_lost=True))

    fragile(first).before = [overtake]
    answer = await create(first)
    assert (overtaken[0][1], answer[1]) == (False, True)
    await one_contact(cosmos_store, answer, *overtaken)


async def test_a_slow_request_sends_nothing_after_the_longest_request(cosmos_store: CosmosStore) -> None:
    """Its claim may have expired, and the contact and its tombstone too: the id would come back at sequence 1."""

    class Slow:
        async def claim(self, key_digest: str, fingerprint: str) -> Claim:
            claim = await cosmos_store.claims.claim(key_digest, fingerprint)
            return replace(claim, usable_until=asyncio.get_running_loop().time() + 3.9)

    store = instance(cosmos_store)
    store.claims = Slow()
    with pytest.raises(Unavailable, match="took too long") as caught:
        await create(store)
    assert not isinstance(caught.value, OutcomeUnknown)
    assert await cosmos_store.events(AggregateKey("contact", "any")) == []
    receipt, replayed = await create(cosmos_store)
    assert not replayed
    await one_contact(cosmos_store, (receipt, replayed))


async def test_a_lost_answer_is_not_asked_for_again_after_the_longest_request(
    cosmos_store: CosmosStore,
) -> None:
    class AlmostLate:
        async def claim(self, key_digest: str, fingerprint: str) -> Claim:
            claim = await cosmos_store.claims.claim(key_digest, fingerprint)
            return replace(claim, usable_until=asyncio.get_running_loop().time() + 4.05)

    store = instance(cosmos_store)
    store.claims = AlmostLate()
    sent: list[float] = []

    async def lose() -> None:
        sent.append(asyncio.get_running_loop().time())
        await lose_the_answer()

    fragile(store).before = [lose] * 100
    with pytest.raises(OutcomeUnknown):
        await create(store)
    assert len(sent) == 1


async def test_a_refusal_without_a_record_behind_it_is_no_answer_but_a_request_to_come_again(
    cosmos_store: CosmosStore,
) -> None:
    """It cannot happen while every rule holds; whatever it is, it is not the caller's fault."""
    receipt, _ = await create(cosmos_store)
    contact_id = str(receipt.aggregate.id)
    await cosmos_store.container.execute(contact_id, [Write.delete(request_id(contact_id))])
    with pytest.raises(Unavailable, match="no record") as caught:
        await create(cosmos_store)
    assert caught.value.retry_after_seconds > 0


async def test_what_is_stored_under_a_claim_lives_at_least_as_long(cosmos_store: CosmosStore) -> None:
    """Also where the setting was lowered, or events are kept for a shorter time than keys."""
    cosmos_store.claims = CosmosClaims(cosmos_store.claim_container, 5000)
    cosmos_store.lifetimes = unit_of_work.Lifetimes(events=60, requests=600)
    receipt, _ = await create(cosmos_store)
    contact_id = str(receipt.aggregate.id)
    record = await cosmos_store.container.read(request_id(contact_id), contact_id)
    assert record is not None
    assert record["ttl"] == 5000
    await service(cosmos_store).delete(receipt.aggregate.id, ORIGIN)
    tombstone = await cosmos_store.container.read(contact_id, contact_id)
    assert tombstone is not None
    assert tombstone["ttl"] == 600


async def test_an_erased_record_holds_nothing_of_the_request_and_needs_no_read(
    cosmos_store: CosmosStore,
) -> None:
    receipt, _ = await create(cosmos_store)
    contact_id = str(receipt.aggregate.id)
    elsewhere = instance(cosmos_store)
    fragile(elsewhere).old_reads = 2
    await service(elsewhere).delete(receipt.aggregate.id, ORIGIN)
    record = await cosmos_store.container.read(request_id(contact_id), contact_id)
    assert record is not None
    assert (record["data"], record["ttl"]) == ({"erased": True}, 600)


async def test_a_claim_holds_neither_the_caller_nor_the_key_nor_the_contact(
    cosmos_store: CosmosStore,
) -> None:
    await create(cosmos_store, KeyedRequest("a-caller", "a-key", "a-body"))
    items, _ = await cosmos_store.claim_container.page("SELECT * FROM c", {}, 10, None)
    text = str(items)
    for secret in ("a-caller", "a-key", "a-body", "johndoe", "John"):
        assert secret not in text
