"""What is due in a team's own document happens once, whatever is lost, and not when the document has changed before.

The rules are those of decision 0026; what is proven of aggregates by ``test_deadlines.py`` is proven here of documents.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from azure.cosmos.aio import CosmosClient

from cosmos_outbox.cosmos.own.deadlines import OwnDue
from cosmos_outbox.cosmos.own.transaction import Transaction
from cosmos_outbox.cosmos.store.container import StoreFailed
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.cosmos.store.item import Item
from cosmos_outbox.cosmos.store.partition_key import Key
from cosmos_outbox.cosmos.store.writes import Write
from cosmos_outbox.outbox.errors import PreconditionFailed, Throttled, Unpublishable
from cosmos_outbox.settings.own_container import OwnContainer
from cosmos_outbox.testing import in_memory
from cosmos_outbox.wiring.service import Service
from devstack.testing import Service as Server
from tests.support.azure import database_of
from tests.support.emulators import Gap
from tests.support.held import HOLD, KINDS, Seats, at, declared, let_go
from tests.support.losses import EACH_LOSS, Failing, Fate, Loss, ProcessDied
from tests.support.offers import NOON
from tests.support.own import World, world_of
from tests.support.reactions import CutOff, no_loss
from tests.support.telemetry import Recorded, recording

pytestmark = pytest.mark.known_gap(Gap.BATCH_IGNORES_ETAG)

MINUTE = timedelta(minutes=1)


@pytest.fixture(
    params=["hierarchical", *(pytest.param(k, marks=pytest.mark.long) for k in ("one path", "nested"))]
)
async def seats(request: pytest.FixtureRequest, cosmos_server: Server) -> AsyncIterator[Seats]:
    service = KINDS[request.param]
    async with (
        database_of(cosmos_server, service) as database,
        CosmosClient.from_connection_string(cosmos_server.connection_string) as client,
    ):
        yield Seats(client, database.id, service)


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    with recording() as found:
        yield found


class Meets(Failing):
    """Something happens just before the first write."""

    before: Callable[[], Awaitable[object]] | None = None

    async def execute(self, partition_key: Key, writes: Sequence[Write]) -> list[str]:
        before, self.before = self.before, None
        if before is not None:
            await before()
        return await super().execute(partition_key, writes)


async def behind_a_fence(seats: Seats, before: Callable[[], Awaitable[object]]) -> Meets:
    """A container that has read the seat when something else happens to it."""
    container = Meets(seats.client, seats.database, "bookings", paths=seats.service.paths)
    container.fate = seats.fate
    await container.fence(seats.service.paths.key(seats.key))
    container.before = before
    return container


@pytest.mark.parametrize("loss", EACH_LOSS)
async def test_whatever_write_is_lost_a_seat_is_freed_once(seats: Seats, loss: Loss) -> None:
    write = 0
    while write == 0 or seats.fate.struck:
        write += 1
        seats.fate = no_loss()
        name = await seats.hold()
        seats.fate = Fate(loss, write)
        await seats.until_met()
        await seats.until_met()
        assert await seats.history(name) == ["SeatHeld", "SeatFreed"], f"write {write}"
    assert write > 1


@pytest.mark.parametrize("loss", EACH_LOSS)
async def test_whatever_two_writes_are_lost_a_seat_is_freed_once(seats: Seats, loss: Loss) -> None:
    """The second way is each in turn: what comes after a lost answer is lost, or throttled, too."""
    for second in Loss:
        seats.fate = no_loss()
        name = await seats.hold()
        seats.fate = Fate(loss, 2, also={3: second})
        await seats.until_met()
        await seats.until_met()
        assert await seats.history(name) == ["SeatHeld", "SeatFreed"], second


async def test_a_process_that_dies_at_any_await_frees_it_once(seats: Seats) -> None:
    at_await, died = 0, True
    while died:
        name = await seats.hold()
        instance = seats.instance()
        [[found]] = [page async for page in instance.documents.pages(NOON)]
        try:
            await CutOff(instance.documents.meet(found, NOON), at_await)
        except ProcessDied:
            await seats.until_met()
        else:
            died = False
        assert await seats.history(name) == ["SeatHeld", "SeatFreed"], f"await {at_await}"
        at_await += 1
    assert at_await > 3


async def test_instances_at_once_free_each_once(seats: Seats) -> None:
    names = [await seats.hold() for _ in range(12)]
    met = await asyncio.gather(*(seats.instance().meet() for _ in range(3)))
    assert sum(met) == 12
    for name in names:
        assert await seats.history(name) == ["SeatHeld", "SeatFreed"]


async def test_a_transaction_moves_it_or_cancels_it_with_all_else(seats: Seats) -> None:
    moved, paid, gone, patched = [await seats.hold() for _ in range(4)]
    await seats.extend(moved, MINUTE)
    await seats.pay(paid)
    await seats.run(lambda tx: tx.delete(gone))
    await seats.run(
        lambda tx: tx.patch(patched, [{"op": "remove", "path": HOLD}]),
        lambda tx: tx.event("Noted", of=("note", "n-1")),
    )
    assert await seats.instance().meet() == 0
    seats.now += MINUTE
    assert await seats.instance().meet() == 1
    assert await seats.history(moved) == ["SeatHeld", "HoldExtended", "SeatFreed"]
    assert await seats.history(paid) == ["SeatHeld", "SeatPaid"]
    assert (await seats.document(moved))["state"] == "free"


async def test_it_is_never_early_by_the_clock_of_who_looks_and_found_in_each_form(seats: Seats) -> None:
    forms = ["12:00:00Z", "12:00:00+00:00", "12:00:00.4Z", "12:00:00.400000+00:00", "11:59:59.9999999Z"]
    await seats.put(*(seats.seat(form, f"2026-03-01T{form}", lastSequence=0) for form in forms))
    for now, met in (
        (NOON - timedelta(seconds=1), 0),
        (NOON - timedelta(microseconds=1), 1),
        (NOON, 2),
        (NOON + timedelta(microseconds=399_999), 0),
        (NOON + timedelta(microseconds=400_000), 2),
    ):
        seats.now = now
        assert await seats.instance().meet() == met, now


async def test_paid_while_it_is_met_it_is_not_freed(seats: Seats) -> None:
    """``at_its_version``: what was read is a seat that is held."""
    name = await seats.hold()
    container = await behind_a_fence(seats, lambda: seats.pay(name))
    writes = seats.fate.writes
    assert await seats.instance(container).meet() == 0
    assert seats.fate.writes > writes, "it was tried"
    assert await seats.history(name) == ["SeatHeld", "SeatPaid"]


async def test_met_while_it_is_paid_the_payment_is_refused(seats: Seats) -> None:
    name = await seats.hold()
    seat = await seats.document(name)
    container = await behind_a_fence(seats, lambda: seats.instance().meet())
    with pytest.raises(PreconditionFailed):
        await seats.run(
            lambda tx: tx.replace(seat | {"state": "paid", "hold": None}, if_match=seat["_etag"]),
            lambda tx: tx.event("SeatPaid", of=("seat", name)),
            over=container,
        )
    assert await seats.history(name) == ["SeatHeld", "SeatFreed"]


async def test_met_by_another_while_it_is_met_what_stands_beside_it_is_stored_once(seats: Seats) -> None:
    """The loser's batch is refused at the document that the winner has created, before its version is looked at."""

    def remind(seat: dict[str, Any], tx: Transaction, now: datetime) -> None:
        tx.create(seats.seat(f"reminder-{seat['id']}", None))
        let_go(seat, tx, now)

    reminding = seats.doing(remind)
    name = await seats.hold()
    container = await behind_a_fence(seats, lambda: reminding.instance().meet())
    assert await reminding.instance(container).meet() == 0
    assert await seats.history(name) == ["SeatHeld", "SeatFreed"]


async def test_what_the_search_found_is_a_hint_and_the_document_decides(
    seats: Seats, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, gone = await seats.hold(), await seats.hold()
    instance = seats.instance()
    pages = [page async for page in instance.documents.pages(NOON)]
    assert {each.id for page in pages for each in page} == {name, gone}
    await seats.extend(name, MINUTE)
    await seats.run(lambda tx: tx.delete(gone))
    etag = (await seats.document(name))["_etag"]

    async def old(*_: object) -> AsyncIterator[Any]:
        for page in pages:
            yield page

    monkeypatch.setattr(OwnDue, "pages", old)  # an index that lags
    assert await instance.meet() == 0
    assert (await seats.document(name))["_etag"] == etag, "nothing was written"
    assert await seats.history(gone) == ["SeatHeld"]


class OldAtFirst(Failing):
    """Whose first read is old."""

    old: Item | None

    async def read(self, item_id: str, partition_key: Key, *, consistent: bool = False) -> Item | None:
        old, self.old = self.old, None
        return old or await super().read(item_id, partition_key, consistent=consistent)


async def test_what_an_old_state_does_not_allow_is_decided_by_the_newest(seats: Seats) -> None:
    def unless_broken(seat: dict[str, Any], tx: Transaction, now: datetime) -> None:
        if seat["state"] == "broken":
            raise RuntimeError
        let_go(seat, tx, now)

    name = await seats.hold()
    await seats.change(name, "SeatBroken", state="broken")
    old = await seats.document(name)
    await seats.change(name, "SeatMended", state="held")
    container = OldAtFirst(seats.client, seats.database, "bookings", paths=seats.service.paths)
    container.fate, container.old = no_loss(), old
    assert await seats.doing(unless_broken).instance(container).meet() == 1
    assert await seats.history(name) == ["SeatHeld", "SeatBroken", "SeatMended", "SeatFreed"]


async def test_what_is_due_by_the_first_read_costs_no_fence(seats: Seats) -> None:
    await seats.hold()
    container = seats.container()
    await container.fence(seats.service.paths.key(seats.key))
    fences = container.fences
    assert await seats.instance(container).meet() == 1
    assert container.fences == fences


async def test_set_met_and_set_again_within_one_beat_it_is_met_again(seats: Seats) -> None:
    def again(seat: dict[str, Any], tx: Transaction, now: datetime) -> None:
        later = datetime.fromisoformat(seat["hold"]["until"]) + MINUTE
        tx.replace(seat | {"hold": {"until": later.isoformat()}}, if_match=seat["_etag"])
        tx.event("Reminded", of=("seat", seat["id"]))

    reminding = seats.doing(again)
    name = await seats.hold()
    reminding.now = NOON + 2 * MINUTE  # after an outage
    instance = reminding.instance()
    assert [await instance.meet() for _ in range(4)] == [1, 1, 1, 0]
    assert await seats.history(name) == ["SeatHeld", "Reminded", "Reminded", "Reminded"]


async def test_a_batch_without_an_event_happens_once_too(seats: Seats) -> None:
    freed = list[str]()

    def silently(seat: dict[str, Any], tx: Transaction, now: datetime) -> None:
        tx.replace(seat | {"hold": None, "freed": seat.get("freed", 0) + 1}, if_match=seat["_etag"])

    quiet = seats.doing(silently)
    for loss in (Loss.NO_ANSWER, Loss.REPEATED, Loss.NOT_WRITTEN, Loss.DIED_AFTER):
        freed.append(await seats.hold())
        quiet.fate = Fate(loss, 2)
        await quiet.until_met()
    assert [(await seats.document(name))["freed"] for name in freed] == [1, 1, 1, 1]


async def test_a_transaction_that_is_full_takes_a_deadline_and_one_that_is_too_full_is_told(
    seats: Seats, caplog: pytest.LogCaptureFixture
) -> None:
    """A deadline is a field of a document: it needs no room of its own."""

    def too_much(seat: dict[str, Any], tx: Transaction, now: datetime) -> None:
        if seat["id"] == "full":
            for number in range(99):
                tx.create(seats.seat(f"beside-{number}", None))
        let_go(seat, tx, now)

    full = seats.doing(too_much)
    await seats.put(*(seats.seat(f"seat-{number}", at(60), lastSequence=0) for number in range(100)))
    await seats.hold(name="full")
    instance = full.instance()
    assert await instance.meet() == 0
    assert f"{HOLD} full is due, and cannot be met: ChangeTooLarge" in caplog.messages
    assert await seats.history("full") == ["SeatHeld"]
    full.now += MINUTE
    assert await instance.meet() == 100


async def test_one_that_cannot_be_met_holds_up_no_other_and_is_told(
    seats: Seats, caplog: pytest.LogCaptureFixture, recorded: Recorded
) -> None:
    broken = await seats.hold(NOON - timedelta(seconds=90), "broken-1")
    sound = await seats.hold()
    instance = seats.instance()
    assert await instance.meet() == 1
    assert await seats.history(sound) == ["SeatHeld", "SeatFreed"]
    told = f"{HOLD} broken-1 is due, and cannot be met: RuntimeError"
    assert caplog.messages.count(told) == 1
    assert "failed on" not in caplog.text
    assert (recorded.gauge("outbox.due.aggregates"), recorded.gauge("outbox.due.oldest")) == (1, 90.0)
    assert await instance.meet() == 0
    assert caplog.messages.count(told) == 1, "it rests"
    await seats.pay(broken)
    seats.monotonic += 301
    await instance.meet()
    assert recorded.gauge("outbox.due.aggregates") == 0


def _nothing(seat: dict[str, Any], tx: Transaction, now: datetime) -> None:
    tx.event("Noted", of=("note", "n-1"))


def _as_due_as_before(seat: dict[str, Any], tx: Transaction, now: datetime) -> None:
    tx.replace(seat, if_match=seat["_etag"])
    tx.event("SeatFreed", of=("seat", seat["id"]))


def _whatever_is_there(seat: dict[str, Any], tx: Transaction, now: datetime) -> None:
    tx.upsert(seat | {"hold": None})


def _at_another_version(seat: dict[str, Any], tx: Transaction, now: datetime) -> None:
    tx.replace(seat | {"hold": None}, if_match='"other"')


def _at_no_version(seat: dict[str, Any], tx: Transaction, now: datetime) -> None:
    tx.delete(seat["id"])


@pytest.mark.parametrize(
    "on_due", [_nothing, _as_due_as_before, _whatever_is_there, _at_another_version, _at_no_version]
)
async def test_what_leaves_it_due_or_does_not_go_by_the_version_is_a_bug_and_stores_nothing(
    seats: Seats, caplog: pytest.LogCaptureFixture, on_due: Any
) -> None:
    name = await seats.hold()
    etag = (await seats.document(name))["_etag"]
    assert await seats.doing(on_due).instance().meet() == 0
    assert f"replace the document that is due, with if_match its _etag, and without {HOLD}" in caplog.text
    assert (await seats.document(name))["_etag"] == etag
    assert await seats.history(name) == ["SeatHeld"]


async def test_a_condition_on_another_document_decides_too_and_is_told(
    seats: Seats, caplog: pytest.LogCaptureFixture
) -> None:
    def if_open(seat: dict[str, Any], tx: Transaction, now: datetime) -> None:
        is_open = "from c where c.state = 'open'"
        tx.patch("row", [{"op": "incr", "path": "/freed", "value": 1}], condition=is_open)
        let_go(seat, tx, now)

    name, row = await seats.hold(), seats.seat("row", None, freed=0)
    await seats.put(row)
    instance = seats.doing(if_open).instance()
    assert await instance.meet() == 0
    assert f"{HOLD} {name} is due, and cannot be met: PreconditionFailed" in caplog.messages
    await seats.run(lambda tx: tx.upsert(row | {"state": "open"}))
    assert await instance.meet() == 0, "it rests"
    instance.time = lambda: 301.0
    assert await instance.meet() == 1
    assert (await seats.document("row"))["freed"] == 1
    assert await seats.history(name) == ["SeatHeld", "SeatFreed"]


async def test_a_due_document_may_be_deleted(seats: Seats) -> None:
    name = await seats.hold()
    deleting = seats.doing(lambda seat, tx, _: tx.delete(seat["id"], if_match=seat["_etag"]))
    assert await deleting.instance().meet() == 1
    assert name not in [item["id"] async for item in seats.proxy.read_all_items()]


@pytest.mark.parametrize("failures", [1, 9])
async def test_a_throttled_store_ends_the_round_and_the_next_one_goes_on(
    seats: Seats, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    names = [await seats.hold() for _ in range(failures)]
    container = seats.container()

    async def throttled(*_: Any) -> list[str]:
        raise StoreFailed(Failure(Kind.THROTTLED, "429"))

    with monkeypatch.context() as patch:
        patch.setattr(container, "execute", throttled)
        with pytest.raises(Throttled):
            await seats.instance(container).meet()
    assert await seats.instance(container).meet() == len(names)


async def test_a_throttled_store_is_not_asked_again_in_the_same_round(
    seats: Seats, monkeypatch: pytest.MonkeyPatch
) -> None:
    await seats.hold()
    container = seats.container()
    execute, refusals = container.execute, [StoreFailed(Failure(Kind.THROTTLED, "429"))]

    async def throttled_once(partition_key: Key, writes: Sequence[Write]) -> list[str]:
        if len(writes) > 1 and refusals:  # no fence
            raise refusals.pop()
        return await execute(partition_key, writes)

    monkeypatch.setattr(container, "execute", throttled_once)
    with pytest.raises(Throttled):
        await seats.instance(container).meet()
    assert await seats.instance(container).meet() == 1


@pytest.mark.parametrize(
    "until",
    [
        "2026-03-01T12:00:00",
        "2026-03-01T17:00:00+05:00",
        "2026-03-01",
        "20260301T120000Z",
        "2026-13-01T12:00:00Z",
        17,
    ],
)
async def test_a_time_in_a_form_that_would_not_be_found_is_refused(seats: Seats, until: Any) -> None:
    seat = seats.seat("s-1", None) | {"hold": {"until": until}}
    for write in (lambda tx: tx.create(seat), lambda tx: tx.upsert(seat)):
        with pytest.raises(Unpublishable, match=f"{HOLD} of document s-1 is no time in UTC"):
            await seats.run(write)


async def test_a_time_in_a_wrong_form_that_was_stored_past_the_transaction_is_told(
    seats: Seats, caplog: pytest.LogCaptureFixture
) -> None:
    await seats.proxy.create_item(seats.seat("s-1", "2026-03-01T10:00:00"))
    assert await seats.instance().meet() == 0
    assert f"cannot be met: {HOLD} of document s-1 is no time in UTC" in caplog.text


async def test_a_document_lives_on_after_its_time(seats: Seats) -> None:
    for ttl in (600, 659):
        with pytest.raises(Unpublishable, match="may expire before what is due"):
            await seats.put(seats.seat("s-1", at(60), ttl=ttl))
    await seats.put(seats.seat("s-1", at(60), ttl=660), seats.seat("s-2", None, ttl=1))
    brief = Seats(seats.client, seats.database, declared(*seats.service.paths.paths, default_ttl=659))
    with pytest.raises(Unpublishable, match="may expire before what is due"):
        await brief.put(seats.seat("s-3", at(60)))
    await brief.put(seats.seat("s-3", at(60), ttl=-1))


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "set", "path": HOLD, "value": "2026-03-01T12:00:00Z"},
        {"op": "set", "path": "/hold", "value": {}},
        {"op": "remove", "path": "/hold"},
        {"op": "move", "from": HOLD, "path": "/elsewhere"},
        {"op": "add", "path": f"{HOLD}/deeper", "value": 1},
    ],
)
async def test_a_patch_sets_no_time(seats: Seats, operation: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a patch can only remove: read the document"):
        await seats.run(lambda tx: tx.patch("s-1", [operation]))


async def test_a_patch_lets_no_document_expire_that_may_be_due(seats: Seats) -> None:
    """What is due would be lost with it, and only the store knows whether it has a time."""
    name = await seats.hold(NOON + MINUTE)
    with pytest.raises(ValueError, match="may be due, and a patch can only let it live for ever"):
        await seats.run(lambda tx: tx.patch(name, [{"op": "set", "path": "/ttl", "value": 1}]))
    await seats.run(lambda tx: tx.patch(name, [{"op": "set", "path": "/ttl", "value": -1}]))
    brief = Seats(seats.client, seats.database, declared(*seats.service.paths.paths, default_ttl=659))
    with pytest.raises(ValueError, match="may be due"):
        await brief.run(lambda tx: tx.patch(name, [{"op": "remove", "path": "/ttl"}]))
    await seats.run(lambda tx: tx.patch(name, [{"op": "remove", "path": "/ttl"}]))


@pytest.mark.parametrize(
    "path", ["/id", "/data/until", "/tenantId", "/tenantId/until", "/lastSequence", "/_ts", "/hold", "/ttl"]
)
def test_a_path_that_is_anothers_is_refused(path: str) -> None:
    own = OwnContainer("/tenantId", {"seat": "/lastSequence"}, due={path: let_go, HOLD: let_go})
    with pytest.raises(ValueError, match="cannot say when something is due"):
        Service("seats", own=own)


def test_what_is_due_is_no_coroutine() -> None:
    async def later(*_: Any) -> None: ...

    with pytest.raises(ValueError, match="make it a plain function"):
        declared("/tenantId", on_due=later)  # type: ignore[arg-type]  # the mistake under test


async def test_in_memory_it_happens_at_a_tick() -> None:
    service = declared("/tenantId", "/row")
    async with in_memory(service, now=NOON) as memory:
        async with service().outbox.transaction(["acme", 7]) as tx:
            seat = {"id": "s-1", "tenantId": "acme", "row": 7, "hold": {"until": at(60)}}
            tx.create(seat)
            tx.event("SeatHeld", of=("seat", "s-1"))
        await memory.upkeep()
        assert len(memory.events) == 1
        memory.clock.pass_by(minutes=1)
        await memory.upkeep()
        await memory.upkeep()
        assert [(each.action, each.sequence) for each in memory.events] == [("SeatHeld", 1), ("SeatFreed", 2)]
        assert {each.schema_version for each in memory.events} == {1}, "unless the service says another"


@pytest.fixture
async def world(cosmos_server: Server) -> AsyncIterator[World]:
    async with world_of(KINDS["hierarchical"], cosmos_server) as world:
        yield world
