"""A message for several heaps: those that were looked up first, whatever is lost or changed; also where they share one
partition.

``tests/models/reaction_lists.py`` searches every order of such failures; here the real adapters are shown to keep its
rules.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, ClassVar
from uuid import uuid4

import pytest
from azure.cosmos.aio import CosmosClient

from cosmos_outbox import Names, Service
from cosmos_outbox.cosmos.aggregates.batch import Lifetimes
from cosmos_outbox.cosmos.inbox.reaction_lists import CosmosTargetLists
from cosmos_outbox.cosmos.inbox.reactions import CosmosReactions
from cosmos_outbox.cosmos.store.container import StoreFailed
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.inbox.errors import ReactionRefused, StoreAway
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.inbox.reaction import ReactionInbox
from cosmos_outbox.inbox.reaction_decision import TargetPlace
from cosmos_outbox.inbox.reaction_targets import MOST_TARGETS, LookedUp, Newest
from cosmos_outbox.inbox.receiver import LONGEST_CALL_SECONDS, MARGIN
from cosmos_outbox.kernel.clock import SYSTEM, using
from cosmos_outbox.outbox.unit_of_work import Origin
from devstack.testing import Service as Server
from devstack.testing import running
from tests.support.azure import CONTACTS, contacts_database
from tests.support.emulators import Gap
from tests.support.losses import EACH_LOSS, Fate, Loss, ProcessDied
from tests.support.reactions import LIVES, CutOff, Heap, Heaps, no_loss, put_mark, told

pytestmark = pytest.mark.known_gap(Gap.BATCH_IGNORES_ETAG)


@pytest.fixture
async def heaps(cosmos_server: Server) -> AsyncIterator[Heaps]:
    async with (
        contacts_database(cosmos_server) as database,
        CosmosClient.from_connection_string(cosmos_server.connection_string) as client,
    ):
        yield Heaps(client, (database.id, CONTACTS))


async def members(newest: Newest, event: Event) -> Sequence[str]:
    """The heaps that a group, which is a heap as well, lists as its marks."""
    group = await newest(Heap, event.data["heap"])
    return [] if group is None else group.state.marks


class Looking(Heaps):
    """Instances whose reaction looks its targets up."""

    def instance(self) -> ReactionInbox[Heap]:
        made = super().instance()
        lists = CosmosTargetLists(
            self.container(), "marks", Lifetimes(600, 600, int(LIVES.total_seconds())), self.clock
        )
        return replace(made, rules=replace(made.rules, targets=LookedUp("marks", lists, members)))


@pytest.fixture
def looking(heaps: Heaps) -> Looking:
    return Looking(heaps.client, heaps.names)


@pytest.fixture(scope="module")
def cosmos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(Server("cosmos", tmp_path_factory.mktemp("cosmos") / "data", "--faults")) as service:
        yield service


@pytest.fixture
async def lagging(cosmos: Server) -> AsyncIterator[Looking]:
    """Where a read without a token sees nothing of what a test stored, once the test says so."""
    async with (
        contacts_database(cosmos) as database,
        CosmosClient.from_connection_string(cosmos.connection_string) as client,
    ):
        yield Looking(client, (database.id, CONTACTS))
        await cosmos.faults.clear()


async def list_of(heaps: Heaps) -> dict[str, Any]:
    proxy = heaps.client.get_database_client(heaps.names[0]).get_container_client(heaps.names[1])
    [found] = [each async for each in proxy.read_all_items() if each["type"] == "reactionTargets"]
    return dict(found)


@pytest.mark.own_stack
async def test_a_list_is_read_behind_a_fence(lagging: Looking, cosmos: Server) -> None:
    """list_fenced: an old list lacks b."""
    a, b = await lagging.made(), await lagging.made()
    group = await lagging.made(a)
    await lagging.change(group, lambda heap: heap.put(b, SYSTEM.now()))
    await cosmos.faults.add("lag", container=CONTACTS, seconds=600, count=None)
    await lagging.until_done(told(group, "m"))
    await cosmos.faults.clear()
    assert [await lagging.marks(each) for each in (a, b)] == [["m"], ["m"]]


@pytest.mark.own_stack
@pytest.mark.parametrize("lags", [False, True])
async def test_a_list_that_changes_meanwhile_is_that_of_the_first_look(
    lagging: Looking, cosmos: Server, lags: bool
) -> None:
    """list_stored_once: b done, dies, the list changes, a and c done would be the targets of no time."""
    a, b, c = await lagging.made(), await lagging.made(), await lagging.made()
    group = await lagging.made(b, a)
    message, inbox = told(group, "m"), lagging.instance()

    class DiesAfterB(CosmosReactions[Heap]):
        async def write(self, place: TargetPlace, *given: Any) -> None:
            await super().write(place, *given)
            raise ProcessDied

    of = inbox.reactions
    assert isinstance(of, CosmosReactions)
    dying = DiesAfterB(of.container, of.kind, of.name, of.order, of.lifetimes, of.on_commit)
    with pytest.raises(ProcessDied):
        await replace(inbox, reactions=dying).handle(message)

    await lagging.change(group, lambda heap: heap.become(a, c))
    if lags:
        await cosmos.faults.add("lag", container=CONTACTS, seconds=600, count=None)
    await lagging.until_done(message)
    await cosmos.faults.clear()
    await lagging.until_done(message)  # published again
    assert [await lagging.marks(each) for each in (a, b, c)] == [["m"], ["m"], []]
    stored = await list_of(lagging)
    assert (stored["data"]["targets"], stored["ttl"]) == ({b: b, a: a}, LIVES.total_seconds())


@pytest.mark.parametrize("loss", EACH_LOSS)
async def test_whatever_write_is_lost_each_of_a_list_is_changed_once(looking: Looking, loss: Loss) -> None:
    write = 0
    while write == 0 or looking.fate.struck:
        write += 1
        looking.fate = no_loss()
        a, b = await looking.made(), await looking.made()
        message = told(await looking.made(a, b), "m")
        looking.fate = Fate(loss, write)
        await looking.until_done(message)
        await looking.until_done(message)
        assert [await looking.marks(each) for each in (a, b)] == [["m"], ["m"]], f"write {write}"
    assert write > 3


async def test_a_process_that_dies_at_any_await_changes_each_of_a_list_once(looking: Looking) -> None:
    at, died = 0, True
    while died:
        a, b, c = await looking.made(), await looking.made(), await looking.made()
        group = await looking.made(a, b)
        message = told(group, "m")
        try:
            await CutOff(looking.instance().handle(message), at)
        except ProcessDied:
            changed = [await looking.marks(each) for each in (a, b)] != [[], []]
            await looking.change(group, lambda heap, c=c: heap.put(c, SYSTEM.now()))
            await looking.until_done(message)
            if changed:
                assert await looking.marks(c) == []
        else:
            died = False
        assert [await looking.marks(each) for each in (a, b)] == [["m"], ["m"]], f"await {at}"
        at += 3
    assert at > 10


async def test_what_was_given_up_before_it_was_looked_up_changes_nothing(looking: Looking) -> None:
    """discard_marks: an instance has looked the list up, and stores it after the message was given up."""
    a = await looking.made()
    group = await looking.made(a)
    message, slow = told(group, "m"), looking.instance()

    async def given_up_meanwhile(newest: Newest, event: Event) -> Sequence[str]:
        found = await members(newest, event)
        await looking.instance().give_up(event, "not wanted")
        return found

    of = slow.rules.targets
    assert isinstance(of, LookedUp)
    targets = replace(of, look_up=given_up_meanwhile)
    await replace(slow, rules=replace(slow.rules, targets=targets)).handle(message)
    await looking.instance().give_up(message, "once more")
    await looking.instance().apply(message)
    assert await looking.marks(a) == []
    assert (await list_of(looking))["data"]["reason"] == "not wanted"


async def test_what_was_given_up_on_the_way_stays_done_where_it_was_done(looking: Looking) -> None:
    a, closed = await looking.made(), await looking.made()
    await looking.change(closed, Heap.close)
    message = told(await looking.made(a, closed), "m")
    with pytest.raises(ReactionRefused, match="the heap is closed"):
        await looking.until_done(message)
    await looking.instance().give_up(message, "not wanted")
    await looking.change(closed, lambda heap: heap.close(closed=False))
    await looking.until_done(message)
    assert [await looking.marks(each) for each in (a, closed)] == [["m"], []]


async def test_what_is_too_old_is_looked_up_by_nobody(looking: Looking) -> None:
    a = await looking.made()
    group = await looking.made(a)
    known, unknown = told(group, "known"), told(group, "unknown")
    await looking.until_done(known)
    looking.clock.later = LIVES - MARGIN
    await looking.until_done(known)
    for ask in (looking.instance().handle, looking.instance().apply):
        with pytest.raises(ReactionRefused, match="may have been applied"):
            await ask(unknown)
    looking.clock.later = timedelta()
    assert await looking.marks(a) == ["known"]


async def test_a_list_is_stored_no_later_than_the_longest_call(looking: Looking) -> None:
    """deadline: a list that another call has stored may have expired meanwhile."""
    a, late, inbox = await looking.made(), [0.0], looking.instance()
    message = told(await looking.made(a), "m")

    async def slow(newest: Newest, event: Event) -> Sequence[str]:
        late[0] = LONGEST_CALL_SECONDS
        return await members(newest, event)

    of = inbox.rules.targets
    assert isinstance(of, LookedUp)
    inbox = replace(inbox, rules=replace(inbox.rules, targets=replace(of, look_up=slow)))
    clock = replace(SYSTEM, monotonic=lambda: SYSTEM.monotonic() + late[0])
    with using(clock), pytest.raises(StoreAway, match="too long"):
        await inbox.handle(message)
    assert await looking.marks(a) == []


async def test_a_look_up_finds_what_lives_and_is_of_the_type_that_it_asks_for(looking: Looking) -> None:
    class Seat(Heap):
        aggregate_type: ClassVar[str] = "seat"

    lives, gone = await looking.made("m"), await looking.made()
    await looking.change(gone, Heap.delete)
    newest = CosmosTargetLists(looking.container(), "marks", Lifetimes(600, 600, 600)).newest
    for found in (await newest(Heap, lives), await newest(Heap, lives, partition_key=lives)):
        assert found is not None
        assert found.state.marks == ("m",)
    for kind, name, key in (
        (Heap, gone, None), (Heap, str(uuid4()), None), (Seat, lives, None), (Heap, lives, "elsewhere"),
    ):  # fmt: skip
        assert await newest(kind, name, partition_key=key) is None


async def test_a_list_that_cannot_be_looked_for_is_not_taken_for_one_that_is_not_there(
    looking: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an old message it would be concluded that nobody has applied it."""
    container = looking.container()
    lists = CosmosTargetLists(container, "marks", Lifetimes(600, 600, 600))

    async def throttled(*_: object) -> list[str]:
        raise StoreFailed(Failure(Kind.THROTTLED, "429", retry_after_seconds=7.0))

    with monkeypatch.context() as patch:
        patch.setattr(container, "execute", throttled)
        with pytest.raises(StoreAway) as away:
            await lists.find("name")
    assert away.value.retry_after_seconds == 7.0
    assert await lists.find("name") is None


async def test_a_list_that_is_too_long_is_refused_before_anything_is_changed(looking: Looking) -> None:
    a = await looking.made()
    group = await looking.made(a, *(str(uuid4()) for _ in range(MOST_TARGETS)))
    message = told(group, "m")
    with pytest.raises(ReactionRefused, match="101 aggregates"):
        await looking.instance().handle(message)
    assert await looking.marks(a) == []


async def test_targets_in_one_partition_of_another_key_have_an_outcome_each(heaps: Heaps) -> None:
    """target_in_id: the record of the one is not taken for the other's."""
    hall = str(uuid4())
    closed, first, second = (f"{hall}-{number}" for number in (1, 2, 3))
    message, inbox = told("", "m"), heaps.instance()

    class Seat(Heap):
        aggregate_type: ClassVar[str] = "seat"

        @property
        def partition_key(self) -> str:
            return hall

    for each in (closed, first, second):
        await heaps.aggregates().create(Seat.make(each), Origin("test"))
    await heaps.aggregates().change(Seat, closed, Heap.close, Origin("test"), partition_key=hall)
    of = inbox.reactions
    assert isinstance(of, CosmosReactions)
    reactions = replace(of, kind=Seat)

    names = dict.fromkeys((closed, first, second), hall)
    rules = replace(inbox.rules, kind="seat", targets=lambda _: names)
    inbox = replace(inbox, reactions=reactions, rules=rules)
    for _ in range(2):
        with pytest.raises(ReactionRefused, match="the heap is closed"):
            await inbox.handle(message)
    seats = [
        await heaps.aggregates().read(Seat, each, Origin("test"), partition_key=hall, newest=True)
        for each in (closed, first, second)
    ]
    assert [seat.aggregate.state.marks for seat in seats] == [(), ("m",), ("m",)]
    assert len(await heaps.documents(hall, "reactionRecord")) == 3


def test_a_declaration_that_cannot_be_right_is_refused() -> None:
    service = Service("heaps", [Heap], Names(database="heaps", container="heaps", topic="heaps"))

    def declare(**given: Any) -> Any:
        return service.reaction("marks", of="offer", to=Heap, **given)(put_mark)

    with pytest.raises(ValueError, match="target, or look_up"):
        declare(order="any")
    with pytest.raises(ValueError, match="target, or look_up"):
        declare(order="any", look_up=members, target=lambda _: "h")
    with pytest.raises(ValueError, match='"newest" or "any"'):
        declare(order="each", look_up=members)
    assert declare(order="newest", look_up=members).look_up is members
