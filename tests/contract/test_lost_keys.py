"""A key makes one contact while processes die, answers get lost and replicas lag, also two of these at once.

``tests/models/claims.py`` searches every order of such failures; here the code is shown to keep the model's rules.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from uuid import UUID

import pytest

from cosmos_outbox.cosmos import transaction
from cosmos_outbox.cosmos.aggregates.documents import request_id
from cosmos_outbox.cosmos.aggregates.idempotency import CosmosClaims, KeyReservation
from cosmos_outbox.cosmos.store.container import Container, StoreFailed, Write
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.cosmos.store.partition_key import Item, Key
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import SYSTEM, using
from cosmos_outbox.outbox.aggregate import LONGEST_REQUEST_SECONDS, Receipt
from cosmos_outbox.outbox.errors import OutcomeUnknown, Unavailable
from domain.contact import Contact
from tests.contract.conftest import CosmosStore
from tests.contract.test_idempotency import create, one_contact, service
from tests.support.contacts import ORIGIN
from tests.support.emulators import Gap


class Fragile(Container):
    """The container of the contacts. The next batches that create something meet what the test asks for."""

    before: list[Callable[[], Awaitable[None]]]
    after: list[Callable[[], Awaitable[None]]]
    old_reads = 0
    """So many reads are answered by a replica that has seen nothing yet."""

    async def execute(self, partition_key: Key, writes: Sequence[Write]) -> list[str]:
        is_creation = any(write.kind == "create" for write in writes)
        if is_creation and self.before:
            await self.before.pop(0)()
        etags = await super().execute(partition_key, writes)
        if is_creation and self.after:
            await self.after.pop(0)()
        return etags

    async def read(self, item_id: str, partition_key: Key, *, consistent: bool = False) -> Item | None:
        if self.old_reads and not consistent and self.seen(partition_key) is None:
            self.old_reads -= 1
            return None
        return await super().read(item_id, partition_key, consistent=consistent)


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


@pytest.mark.parametrize("old_reads", [pytest.param(0, marks=pytest.mark.long), 2])
async def test_after_a_crash_before_its_transaction_a_repetition_has_the_same_id(
    store: CosmosStore, old_reads: int
) -> None:
    first = instance(store)
    fragile(first).before = [die]
    ids: list[UUID] = []

    class Noting(CosmosClaims):
        async def claim(self, key_digest: str, fingerprint: str) -> KeyReservation:
            claim = await store.claims.claim(key_digest, fingerprint)
            ids.append(claim.aggregate_id)
            return claim

    first.claims = Noting(store.claim_container, 600)
    with pytest.raises(Died):
        await create(first)
    second = instance(store)
    fragile(second).old_reads = old_reads
    receipt, replayed = await create(second)
    assert (receipt.aggregate.id, replayed) == (ids[0], False)
    await one_contact(store, (receipt, replayed))


@pytest.mark.known_gap(Gap.BATCH_NOT_ATOMIC)
@pytest.mark.parametrize(("end", "old_reads"), [(die, 2), (lose_the_answer, 0)])
async def test_a_creation_whose_answer_never_came_is_found_by_its_repetition(
    store: CosmosStore,
    monkeypatch: pytest.MonkeyPatch,
    end: Callable[[], Awaitable[None]],
    old_reads: int,
) -> None:
    first = instance(store)
    fragile(first).after = [end]
    monkeypatch.setattr(transaction, "PATIENCE_SECONDS", 0.0)
    with pytest.raises((Died, OutcomeUnknown)):
        await create(first)
    second = instance(store)
    fragile(second).old_reads = old_reads
    receipt, replayed = await create(second)
    assert replayed
    assert receipt.etag is not None
    await one_contact(store, (receipt, replayed))


@pytest.mark.known_gap(Gap.BATCH_NOT_ATOMIC)
async def test_a_lost_creation_overtaken_by_its_repetition_creates_one(store: CosmosStore) -> None:
    """The first process tries its transaction again and meets the repetition's contact."""
    first, second = instance(store), instance(store)
    overtaken: list[tuple[Receipt[Contact], bool]] = []

    async def overtake() -> None:
        overtaken.append(await create(second))
        raise StoreFailed(Failure(Kind.PASSING, "injected: never sent", answer_lost=True))

    fragile(first).before = [overtake]
    answer = await create(first)
    assert (overtaken[0][1], answer[1]) == (False, True)
    await one_contact(store, answer, *overtaken)


async def test_a_slow_request_sends_nothing_after_the_longest_request(store: CosmosStore) -> None:
    """Its claim may have expired, and the contact and its tombstone too: the id would come back at sequence 1."""

    claims = store.claims

    class Slow(CosmosClaims):
        async def claim(self, key_digest: str, fingerprint: str) -> KeyReservation:
            claim = await claims.claim(key_digest, fingerprint)
            return replace(claim, usable_until=asyncio.get_running_loop().time() + 3.9)

    slow = instance(store)
    slow.claims = Slow(store.claim_container, 600)
    with pytest.raises(Unavailable, match="ran out of time") as caught:
        await create(slow)
    assert not isinstance(caught.value, OutcomeUnknown)
    assert await store.events(AggregateKey("contact", "any")) == []
    receipt, replayed = await create(store)
    assert not replayed
    await one_contact(store, (receipt, replayed))


async def test_a_lost_answer_is_not_asked_for_again_after_the_longest_request(
    store: CosmosStore,
) -> None:
    claims = store.claims

    class AlmostLate(CosmosClaims):
        async def claim(self, key_digest: str, fingerprint: str) -> KeyReservation:
            claim = await claims.claim(key_digest, fingerprint)
            return replace(claim, usable_until=asyncio.get_running_loop().time() + 4.05)

    store = instance(store)
    store.claims = AlmostLate(store.claim_container, 600)
    sent: list[float] = []

    async def lose() -> None:
        sent.append(asyncio.get_running_loop().time())
        await lose_the_answer()

    fragile(store).before = [lose] * 100
    with pytest.raises(OutcomeUnknown):
        await create(store)
    assert len(sent) == 1


async def test_a_process_stopped_in_the_pause_before_a_retry_sends_nothing_more(
    store: CosmosStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its claim may have expired by then: another request has made another contact under the same key."""
    store, sent, ahead = instance(store), list[str](), 0.0
    sleep = asyncio.sleep

    async def lose() -> None:
        sent.append("a batch")
        await lose_the_answer()

    async def stopped(seconds: float) -> None:
        nonlocal ahead
        await sleep(seconds)
        ahead = LONGEST_REQUEST_SECONDS

    fragile(store).before = [lose] * 100
    monkeypatch.setattr(asyncio, "sleep", stopped)
    later = replace(SYSTEM, monotonic=lambda: SYSTEM.monotonic() + ahead)
    with using(later), pytest.raises(OutcomeUnknown):
        await create(store)
    assert sent == ["a batch"]


async def test_a_conflict_without_a_record_raises_unavailable(store: CosmosStore) -> None:
    """It cannot happen while every rule holds; whatever it is, it is not the caller's fault."""
    receipt, _ = await create(store)
    contact_id = str(receipt.aggregate.id)
    await store.container.execute(contact_id, [Write.delete(request_id(contact_id))])
    with pytest.raises(Unavailable, match="no record") as caught:
        await create(store)
    assert caught.value.retry_after_seconds > 0


async def test_an_erased_record_holds_nothing_of_the_request_and_needs_no_read(
    store: CosmosStore,
) -> None:
    receipt, _ = await create(store)
    contact_id = str(receipt.aggregate.id)
    elsewhere = instance(store)
    fragile(elsewhere).old_reads = 2
    await service(elsewhere).delete(receipt.aggregate.id, ORIGIN)
    record = await store.container.read(request_id(contact_id), contact_id)
    assert record is not None
    assert (record["data"], record["ttl"]) == ({"erased": True}, 600)
