"""A creation that is repeated with the same key happens once, and a repetition gets the first answer."""

import asyncio

import pytest

from application.contacts import Contacts
from application.errors import ContactNotFound
from devstack.testing import eventually
from domain.contact import Contact
from domain.values import Name
from infra.cosmos.container import StoreFailed, Write
from infra.cosmos.errors import Failure, Kind
from outbox.aggregates import Aggregates
from outbox.errors import IdempotencyKeyReused, RequestInProgress
from outbox.unit_of_work import Receipt
from tests.contract.conftest import CosmosStore, Store
from tests.support.contacts import DETAILS, LATER, ORIGIN
from tests.support.emulators import Gap

JANE = Name(first_name="Jane", last_name="Doe")
OTHER = DETAILS.model_copy(update={"email": "other@contoso.com"})


def service(store: Store) -> Contacts:
    return Contacts(Aggregates(store.open), clock=lambda: LATER)


async def create(store: Store, key: str) -> tuple[Receipt[Contact], bool]:
    return await service(store).create_once(DETAILS, ORIGIN, key)


async def test_a_repetition_gets_the_first_answer(store: Store) -> None:
    first, replayed = await create(store, "order-1")
    again, again_replayed = await create(store, "order-1")
    assert (replayed, again_replayed) == (False, True)
    assert again.aggregate.state == first.aggregate.state
    assert again.etag == first.etag
    assert len(await store.events(first.aggregate.key)) == 1


async def test_another_key_is_another_contact(store: Store) -> None:
    first, _ = await create(store, "order-1")
    second, replayed = await create(store, "order-2")
    assert not replayed
    assert first.aggregate.id != second.aggregate.id


async def test_another_body_under_the_same_key_is_refused(store: Store) -> None:
    first, _ = await create(store, "order-1")
    with pytest.raises(IdempotencyKeyReused):
        await service(store).create_once(OTHER, ORIGIN, "order-1")
    assert len(await store.events(first.aggregate.key)) == 1


async def test_the_first_answer_stays_what_it_was_but_claims_no_version_that_is_gone(store: Store) -> None:
    first, _ = await create(store, "order-1")
    await service(store).revise(
        first.aggregate.id, lambda details: details.model_copy(update={"name": JANE}), ORIGIN
    )
    again, replayed = await create(store, "order-1")
    assert replayed
    assert again.aggregate.state.name == Name(first_name="John", last_name="Doe")
    assert again.etag is None


async def test_a_repetition_does_not_bring_back_a_contact_that_was_deleted(store: Store) -> None:
    first, _ = await create(store, "order-1")
    await service(store).delete(first.aggregate.id, ORIGIN)
    again, replayed = await create(store, "order-1")
    assert (again.aggregate.id, replayed) == (first.aggregate.id, True)
    with pytest.raises(ContactNotFound):
        await service(store).read(first.aggregate.id, ORIGIN)


@pytest.mark.known_gap(Gap.BATCH_NOT_ATOMIC)
async def test_of_many_at_once_one_creates_and_the_others_get_its_answer_or_are_told_to_ask_again(
    store: Store,
) -> None:
    outcomes = await asyncio.gather(*(create(store, "order-1") for _ in range(10)), return_exceptions=True)
    receipts = [outcome for outcome in outcomes if isinstance(outcome, tuple)]
    assert all(
        isinstance(outcome, RequestInProgress) for outcome in outcomes if not isinstance(outcome, tuple)
    )
    assert [replayed for _, replayed in receipts].count(False) == 1
    [key] = {receipt.aggregate.key for receipt, _ in receipts}
    assert len(await store.events(key)) == 1


async def test_once_its_record_has_expired_a_key_creates_anew(store: Store) -> None:
    store.forget_requests()
    first, _ = await create(store, "order-1")

    async def anew() -> Receipt[Contact] | None:
        receipt, replayed = await create(store, "order-1")
        return None if replayed else receipt

    second = await eventually(anew)
    assert second is not None
    assert second.aggregate.id != first.aggregate.id
    assert len(await store.events(first.aggregate.key)) == 1


async def test_a_creation_whose_answer_was_lost_for_good_is_found_by_its_repetition(
    cosmos_store: CosmosStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that stored it died before it could answer."""
    execute = cosmos_store.container.execute

    async def die(partition_key: str, writes: list[Write]) -> list[str]:
        await execute(partition_key, writes)
        raise StoreFailed(Failure(Kind.NO_CONTAINER, "injected: whatever ends the request at once"))

    monkeypatch.setattr(cosmos_store.container, "execute", die)
    with pytest.raises(Exception, match="injected"):
        await create(cosmos_store, "order-1")
    monkeypatch.undo()

    receipt, replayed = await create(cosmos_store, "order-1")

    assert replayed
    assert receipt.etag is not None
    assert len(await cosmos_store.events(receipt.aggregate.key)) == 1
