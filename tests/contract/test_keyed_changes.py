"""A change with a key happens once, and a repetition gets the first answer, whatever write, answer or process is lost.

``tests/models/keyed.py`` searches every order of such failures; here the real adapters are shown to keep its rules.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast
from uuid import uuid4

import pytest
from azure.cosmos.aio import CosmosClient

from cosmos_outbox.cosmos.aggregates.aggregates import ATTEMPTS, Aggregates
from cosmos_outbox.cosmos.aggregates.idempotency import CosmosClaims
from cosmos_outbox.cosmos.aggregates.unit_of_work import CosmosUnitOfWork, Lifetimes
from cosmos_outbox.cosmos.store.container import Container
from cosmos_outbox.cosmos.store.partition_key import Item, Key
from cosmos_outbox.kernel.clock import SYSTEM, using
from cosmos_outbox.outbox.aggregate import LONGEST_REQUEST_SECONDS, ChangeAnswer, Commit, KeyedRequest, Origin
from cosmos_outbox.outbox.errors import (
    AggregateNotFound,
    ChangeTooLarge,
    ConcurrentChange,
    IdempotencyKeyReused,
    PreconditionFailed,
    RefusedBefore,
    Throttled,
    Unavailable,
    Unpublishable,
)
from devstack.testing import Service, eventually
from tests.support.azure import CONTACTS, contacts_database
from tests.support.emulators import Gap
from tests.support.losses import EACH_LOSS, Failing, Fate, Loss, ProcessDied
from tests.support.reactions import CutOff, Heap, Heaps, no_loss

pytestmark = pytest.mark.known_gap(Gap.BATCH_IGNORES_ETAG)

ORIGIN = Origin("request-7")


KINDS = ["changes", *(pytest.param(each, marks=pytest.mark.long) for each in ("deletes", "refused"))]
"""What a request does; ``tests/models/keyed.py`` has all of them."""


class HeapClosed(Exception):
    """A closed heap takes no mark."""


def status_of(error: Exception) -> int | None:
    return 409 if isinstance(error, HeapClosed) else None


def a_request(body: str = "a") -> KeyedRequest:
    return KeyedRequest("ada", uuid4().hex, body, status_of)


def puts(mark: str = "a", times: int = 1) -> Callable[[Heap], None]:
    def put(heap: Heap) -> None:
        if heap.state.closed:
            raise HeapClosed("the heap is closed")
        for _ in range(times):
            heap.put(mark, SYSTEM.now())

    return put


@dataclass(frozen=True)
class Asking:
    """A request, as its caller repeats it."""

    name: str
    change: Callable[[Heap], None] = field(default_factory=puts)
    request: KeyedRequest = field(default_factory=a_request)
    if_match: tuple[str, ...] = ()

    async def ask(self, aggregates: Aggregates) -> ChangeAnswer[Heap]:
        return await aggregates.change_once(
            Heap, self.name, self.change, self.request, ORIGIN, if_match=self.if_match
        )


class Instances(Heaps):
    """Any number of processes that change heaps, whose replicas lag."""

    lifetimes = Lifetimes(600, 600)

    def opened(self, container: Container) -> Aggregates:
        unused: Any = None
        return Aggregates(lambda origin: CosmosUnitOfWork(container, "test", origin, self.lifetimes), unused)

    async def until_answered(self, asking: Asking) -> ChangeAnswer[Heap]:
        """A caller repeats its request until there is an answer, at whichever instance."""
        aggregates = self.opened(self.container())
        for _ in range(6):
            try:
                return await asking.ask(aggregates)
            except ProcessDied:
                aggregates = self.opened(self.container())
            except (Unavailable, Throttled):
                pass
        raise AssertionError("never answered")

    async def version(self, name: str) -> str:
        return (await self.aggregates().read(Heap, name, ORIGIN, newest=True)).etag

    async def records(self, name: str) -> list[dict[str, Any]]:
        return await self.documents(name, "changeRecord")


@pytest.fixture
async def heaps(cosmos_server: Service) -> AsyncIterator[Instances]:
    async with (
        contacts_database(cosmos_server) as database,
        CosmosClient.from_connection_string(cosmos_server.connection_string) as client,
    ):
        yield Instances(client, (database.id, CONTACTS))


@pytest.mark.parametrize("pinned", [pytest.param(False, marks=pytest.mark.long), True])
@pytest.mark.parametrize("loss", EACH_LOSS)
async def test_a_change_happens_once_and_is_answered_alike_at_any_lost_write(
    heaps: Instances, loss: Loss, pinned: bool
) -> None:
    """record_before_no, record_first: the repetition of a pinned change is no 412."""
    write = 0
    while write == 0 or heaps.fate.struck:
        write += 1
        heaps.fate = no_loss()
        name = await heaps.made()
        asking = Asking(name, if_match=(await heaps.version(name),) if pinned else ())
        heaps.fate = Fate(loss, write)
        first = await heaps.until_answered(asking)
        again = await heaps.until_answered(asking)
        assert (first.sequence, again.sequence, again.replayed) == (2, 2, True), f"write {write}"
        assert again.receipt is not None
        assert again.receipt.etag == await heaps.version(name)
        await heaps.change(name, puts("other"))
        late = await heaps.until_answered(asking)
        assert (late.sequence, late.receipt) == (2, None)
        assert await heaps.marks(name) == ["a", "other"], f"write {write}"
        [record] = await heaps.records(name)
        assert record["data"]["refused"] is None
    assert write > 2


@pytest.mark.long
@pytest.mark.parametrize("loss", EACH_LOSS)
async def test_whatever_write_is_lost_a_deletion_is_answered_alike(heaps: Instances, loss: Loss) -> None:
    """record_before_no: the repetition is no 404."""
    write = 0
    while write == 0 or heaps.fate.struck:
        write += 1
        heaps.fate = no_loss()
        name = await heaps.made()
        asking = Asking(name, Heap.delete)
        heaps.fate = Fate(loss, write)
        for _ in range(2):
            assert (await heaps.until_answered(asking)).sequence == 2, f"write {write}"
        with pytest.raises(AggregateNotFound):
            await heaps.until_answered(Asking(name))
        assert len(await heaps.documents(name, "domainEvent")) == 2
    assert write > 2


@pytest.mark.long
@pytest.mark.parametrize("loss", EACH_LOSS)
async def test_whatever_write_is_lost_a_refusal_stays_one(heaps: Instances, loss: Loss) -> None:
    """refusal_recorded, and nothing is an answer too"""
    write = 0
    while write == 0 or heaps.fate.struck:
        write += 1
        heaps.fate = no_loss()
        name = await heaps.made()
        await heaps.change(name, Heap.close)
        refused, nothing = Asking(name), Asking(name, Heap.close)
        heaps.fate = Fate(loss, write)
        for _ in range(2):
            with pytest.raises(HeapClosed):
                await heaps.until_answered(refused)
        first = await heaps.until_answered(nothing)
        assert first.receipt is not None
        assert (first.sequence, first.receipt.etag) == (2, await heaps.version(name))
        await heaps.change(name, lambda heap: heap.close(closed=False))
        with pytest.raises(RefusedBefore) as refusal:
            await heaps.until_answered(refused)
        assert refusal.value.status == 409
        again = await heaps.until_answered(nothing)
        assert (again.sequence, again.receipt, again.replayed) == (2, None, True)
        assert await heaps.marks(name) == []
        assert not (await heaps.aggregates().read(Heap, name, ORIGIN, newest=True)).aggregate.state.closed
    assert write > 2


async def test_a_refusal_stays_one_where_its_repetition_would_fail_otherwise(heaps: Instances) -> None:
    def fail(heap: Heap) -> None:
        raise ZeroDivisionError("a bug that came later")

    name = await heaps.made()
    await heaps.change(name, Heap.close)
    refused = Asking(name)
    with pytest.raises(HeapClosed):
        await heaps.until_answered(refused)
    with pytest.raises(RefusedBefore) as refusal:
        await heaps.until_answered(replace(refused, change=fail))
    assert refusal.value.status == 409


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
async def test_a_process_that_dies_at_any_await_changes_it_once(heaps: Instances, kind: str) -> None:
    at, died = 0, True
    while died:
        name = await heaps.made()
        if kind == "refused":
            await heaps.change(name, Heap.close)
        asking = Asking(name, Heap.delete if kind == "deletes" else puts())
        try:
            await CutOff(asking.ask(heaps.opened(heaps.container())), at)
        except (ProcessDied, HeapClosed) as error:
            died = isinstance(error, ProcessDied)
        else:
            died = False
        for _ in range(2):
            if kind == "refused":
                with pytest.raises(HeapClosed):
                    await heaps.until_answered(asking)
            else:
                assert (await heaps.until_answered(asking)).sequence == 2, f"await {at}"
        assert len(await heaps.records(name)) == 1
        at += 1
    assert at > 5


async def test_the_same_request_at_once_is_one_change(heaps: Instances) -> None:
    name = await heaps.made()
    asking, others = Asking(name), [Asking(name, puts("b")), Asking(name, puts("c"))]
    answers = await asyncio.gather(*(heaps.until_answered(each) for each in [asking] * 4 + others))
    assert sorted(await heaps.marks(name)) == ["a", "b", "c"]
    assert len({each.sequence for each in answers[:4]}) == 1
    assert [each.replayed for each in answers[:4]].count(False) <= 1


async def test_a_key_is_its_callers_and_counts_for_each_target(heaps: Instances) -> None:
    """caller_in_id, target_in_id"""
    name, other = await heaps.made(), await heaps.made()
    asking = Asking(name)
    of_another = replace(asking, request=replace(asking.request, caller="ben", fingerprint="another"))
    for each in (asking, of_another, replace(asking, name=other)):
        assert not (await heaps.until_answered(each)).replayed
    assert [await heaps.marks(each) for each in (name, other)] == [["a", "a"], ["a"]]
    assert len({request.of_change(*to) for request in (asking.request, of_another.request) for to in (
        ("heap", "1"), ("heap", "2"), ("pile", "1"), ("he", "ap1")
    )}) == 8  # fmt: skip


async def test_another_body_is_refused_and_another_condition_is_not(heaps: Instances) -> None:
    """fingerprint: who has read again, and repeats, gets the first answer."""
    name = await heaps.made()
    asking = Asking(name, if_match=(await heaps.version(name),))
    await heaps.until_answered(asking)
    with pytest.raises(IdempotencyKeyReused):
        await heaps.until_answered(replace(asking, request=replace(asking.request, fingerprint="b")))
    await heaps.change(name, puts("other"))
    rebased = replace(asking, if_match=(await heaps.version(name),))
    for each in (asking, rebased, replace(asking, if_match=())):
        assert (await heaps.until_answered(each)).sequence == 2
    assert await heaps.marks(name) == ["a", "other"]


class Meeting(Failing):
    """A container at which something happens before the n-th read of an aggregate that has a session."""

    async def read(self, item_id: str, partition_key: Key, *, consistent: bool = False) -> Item | None:
        if consistent:
            await self.renew_token(partition_key)
        if item_id == partition_key and self.seen(partition_key) is not None and self.meets:
            await self.meets.pop(0)()
        found = await super().read(item_id, partition_key)
        if consistent and item_id != partition_key and self.looked:
            await self.looked.pop(0)()
        return found

    meets: list[Callable[[], Awaitable[None]]]

    looked: list[Callable[[], Awaitable[None]]]


def meeting(heaps: Instances) -> Meeting:
    container = Meeting(heaps.client, *heaps.names)
    container.fate, container.meets, container.looked = no_loss(), [], []
    return container


async def test_a_duplicate_committed_before_the_last_read_is_no_other_writer(heaps: Instances) -> None:
    """state_then_record: else there is no record, the duplicate commits, and another version is a 412."""
    name = await heaps.made()
    asking = Asking(name, if_match=(await heaps.version(name),))
    container = meeting(heaps)

    async def duplicate() -> None:
        await heaps.until_answered(asking)

    container.meets = [duplicate]
    answer = await asking.ask(heaps.opened(container))
    assert (answer.sequence, answer.replayed, container.meets) == (2, True, [])
    assert await heaps.marks(name) == ["a"]


async def test_a_duplicate_committed_after_the_last_read_is_the_one_that_counts(heaps: Instances) -> None:
    """created_only: a consistent read did not see it, and then it was there."""
    name = await heaps.made()
    await heaps.change(name, Heap.close)
    asking = Asking(name)
    container = meeting(heaps)

    async def opened() -> None:
        await heaps.change(name, lambda heap: heap.close(closed=False))
        await heaps.until_answered(asking)

    container.looked = [opened]  # it has read "closed", and finds no record
    answer = await asking.ask(heaps.opened(container))
    assert (answer.sequence, answer.replayed) == (4, True)
    assert await heaps.marks(name) == ["a"]


class Lagging(Failing):
    """A replica that shows an earlier state of one item to who has no session."""

    old: Item

    async def read(self, item_id: str, partition_key: Key, *, consistent: bool = False) -> Item | None:
        if item_id == self.old["id"] and not consistent and self.seen(partition_key) is None:
            return self.old
        return await super().read(item_id, partition_key, consistent=consistent)


async def lagging(heaps: Instances, name: str) -> Aggregates:
    container = Lagging(heaps.client, *heaps.names)
    old = await Container(heaps.client, *heaps.names).read(name, name)
    assert old is not None
    container.fate, container.old = no_loss(), old
    return heaps.opened(container)


async def test_an_old_read_refuses_nothing(heaps: Instances) -> None:
    """newest_for_a_no: the current version is no 412, an old refusal and an old "nothing" no answer."""
    name = await heaps.made()
    behind = await lagging(heaps, name)
    await heaps.change(name, puts("other"))
    pinned = Asking(name, if_match=(await heaps.version(name),))
    assert (await pinned.ask(behind)).sequence == 3
    await heaps.change(name, Heap.close)
    behind = await lagging(heaps, name)
    await heaps.change(name, lambda heap: heap.close(closed=False))
    assert (await Asking(name, puts("b")).ask(behind)).sequence == 6
    behind = await lagging(heaps, name)
    await heaps.change(name, Heap.close)
    opened = Asking(name, lambda heap: heap.close(closed=False))
    assert (await opened.ask(behind)).sequence == 8
    assert await heaps.marks(name) == ["other", "a", "b"]


async def test_what_the_heap_has_not_decided_leaves_the_key_unused(heaps: Instances) -> None:
    """unused_by_412: who reads again and repeats is served. An error that is no refusal is none."""
    name, elsewhere = await heaps.made(), str(uuid4())
    asking = Asking(name, if_match=('"another"',))
    with pytest.raises(PreconditionFailed, match="another version"):
        await heaps.until_answered(asking)
    with pytest.raises(AggregateNotFound):
        await heaps.until_answered(Asking(elsewhere, request=asking.request))

    def fails(heap: Heap) -> None:
        raise RuntimeError("a bug")

    for change, error in ((puts(times=99), ChangeTooLarge), (fails, RuntimeError)):
        with pytest.raises(error):
            await heaps.until_answered(replace(asking, change=change, if_match=()))
    assert await heaps.records(name) == []
    await heaps.until_answered(replace(asking, if_match=(await heaps.version(name),)))
    assert await heaps.marks(name) == ["a"]


async def test_the_record_is_one_of_the_hundred_operations(heaps: Instances) -> None:
    name = await heaps.made()
    await heaps.until_answered(Asking(name, puts(times=98)))
    assert len(await heaps.marks(name)) == 98
    with pytest.raises(ChangeTooLarge, match="100 documents"):
        await heaps.until_answered(Asking(name, puts(times=99)))
    await heaps.change(name, puts(times=99))


async def test_losing_each_race_is_a_conflict_unless_the_duplicate_won(heaps: Instances) -> None:
    """decide_anew, and record_before_no: 409 is a no too."""
    name = await heaps.made()
    asking = Asking(name)
    raced = 0

    class Raced(Failing):
        async def execute(self, partition_key: Key, writes: Any) -> list[str]:
            nonlocal raced
            if len(writes) > 1:
                raced += 1
                if raced == duplicate_at:
                    await heaps.until_answered(asking)
                else:
                    await heaps.change(name, puts("other"))
            return await super().execute(partition_key, writes)

    for duplicate_at in (0, ATTEMPTS - 1):  # the first reads an old state, and sends nothing
        raced = 0
        container = Raced(heaps.client, *heaps.names)
        container.fate = no_loss()
        if duplicate_at:
            assert (await asking.ask(heaps.opened(container))).replayed
        else:
            with pytest.raises(ConcurrentChange):
                await asking.ask(heaps.opened(container))
    assert (await heaps.marks(name)).count("a") == 1


async def test_nothing_is_sent_later_than_the_longest_request(heaps: Instances) -> None:
    """deadline: the duplicate's record may have expired by then."""
    late = [0.0]
    slow = replace(SYSTEM, monotonic=lambda: SYSTEM.monotonic() + late[0])

    async def pass_time() -> None:
        late[0] += LONGEST_REQUEST_SECONDS

    for closed, pinned in ((False, ()), (True, ()), (False, ('"another"',))):
        name = await heaps.made()
        if closed:
            await heaps.change(name, Heap.close)
        container = meeting(heaps)
        container.meets = [pass_time]
        with using(slow), pytest.raises(Unavailable, match=r"ran out of time|took too long"):
            await Asking(name, if_match=pinned).ask(heaps.opened(container))
        assert await heaps.records(name) == []
        assert await heaps.marks(name) == []


async def test_a_record_holds_nothing_personal_and_lives_as_long_as_other_keys(heaps: Instances) -> None:
    name = await heaps.made()
    await heaps.until_answered(Asking(name, puts("Ada Lovelace"), KeyedRequest("somebody", "my-key", "body")))
    [record] = await heaps.records(name)
    assert record["data"] == {"fingerprint": "body", "sequence": 2, "refused": None}
    assert record["ttl"] == 600
    assert not [each for each in ("Lovelace", "somebody", "my-key") if each in str(record)]


async def test_once_its_record_has_expired_a_key_changes_anew(heaps: Instances) -> None:
    heaps.lifetimes = Lifetimes(600, 1)
    name = await heaps.made()
    asking = Asking(name)
    await heaps.until_answered(asking)

    async def anew() -> bool:
        return not (await heaps.until_answered(asking)).replayed

    await eventually(anew)
    assert len(await heaps.marks(name)) == 2


async def test_after_a_deletion_a_repetition_gets_the_first_answer(
    heaps: Instances,
) -> None:
    name = await heaps.made()
    change, deletion = Asking(name), Asking(name, Heap.delete)
    await heaps.until_answered(change)
    await heaps.until_answered(deletion)
    for _ in range(2):
        changed, deleted = await heaps.until_answered(change), await heaps.until_answered(deletion)
        assert (changed.sequence, changed.receipt) == (2, None)
        assert (deleted.sequence, deleted.receipt, deleted.replayed) == (3, None, True)
    assert len(await heaps.records(name)) == 2


async def test_a_change_without_effect_is_recorded_and_its_repetition_replayed(heaps: Instances) -> None:
    name = await heaps.made()
    asking = Asking(name, change=lambda _: None)
    first, again = await heaps.until_answered(asking), await heaps.until_answered(asking)
    assert (first.sequence, first.replayed, again.sequence, again.replayed) == (1, False, 1, True)
    for each in (first, again):
        assert each.receipt is not None
        assert each.receipt.etag == await heaps.version(name)


class Contended(CosmosUnitOfWork):
    """``meets``: what each commit of the request meets, one after the other; then they go on."""

    meets: list[Exception]
    looks: list[bool]
    """Whether each reading of the state was consistent."""

    async def get(self, *given: Any, newest: bool = False, **named: Any) -> Any:
        self.looks.append(newest)
        return await super().get(*given, newest=newest, **named)

    async def commit(self, *, until: float | None = None) -> Commit:
        if self.meets:
            self._clear()
            raise self.meets.pop(0)
        return await super().commit(until=until)


async def contended(
    heaps: Instances, name: str, *errors: Exception
) -> tuple[Aggregates, list[Exception], list[bool]]:
    left, looks, container, unused = (
        list[Exception](),
        list[bool](),
        heaps.container(),
        cast(CosmosClaims, None),
    )

    def opened(origin: Origin) -> Contended:
        work = Contended(container, "test", origin, heaps.lifetimes)
        work.meets, work.looks = left, looks
        return work

    aggregates = Aggregates(opened, unused)
    await aggregates.read(Heap, name, ORIGIN, newest=True)  # from then on no replica is too old for it
    left += errors
    looks.clear()
    return aggregates, left, looks


async def test_it_is_tried_so_often_and_looks_once_more_for_its_duplicate(heaps: Instances) -> None:
    name, changed = await heaps.made(), [PreconditionFailed("by another")] * 9
    aggregates, left, looks = await contended(heaps, name, *changed)
    with pytest.raises(ConcurrentChange, match="at each attempt"):
        await Asking(name).ask(aggregates)
    assert len(changed) - len(left) == ATTEMPTS
    assert looks == [False] + [True] * ATTEMPTS, "only what may be a no costs a consistent read"


@pytest.mark.parametrize("no", [ChangeTooLarge("over 100"), Unpublishable("a lone surrogate")])
async def test_what_is_too_large_for_an_old_state_may_not_be_for_the_newest(
    heaps: Instances, no: Exception
) -> None:
    name = await heaps.made()
    aggregates, _, _ = await contended(heaps, name, no)
    assert (await Asking(name).ask(aggregates)).sequence == 2
    aggregates, left, _ = await contended(heaps, name, no, no, no)
    with pytest.raises(type(no)):
        await Asking(name).ask(aggregates)
    assert left == [no], "after a consistent read it is the answer"
