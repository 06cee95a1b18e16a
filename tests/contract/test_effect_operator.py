"""An operator sees the effects that nobody is done with, and tries them again or gives them up."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import pytest
from azure.cosmos.aio import CosmosClient

from cosmos_outbox.cosmos.inbox.effect_list import CosmosEffectList
from cosmos_outbox.cosmos.inbox.ledger import CosmosLedger
from cosmos_outbox.cosmos.store.container import Container
from cosmos_outbox.inbox.effect import EffectMarker, Mark, MarkState, SeenMark, Unsure
from cosmos_outbox.inbox.effect_operator import EffectList, EffectOperator, EffectPage, OpenEffect
from cosmos_outbox.inbox.effects import EffectInbox
from cosmos_outbox.inbox.errors import (
    EffectAway,
    EffectNotDone,
    EffectRunning,
    InboxError,
    NotApplied,
    NotInTurn,
    NotSetAside,
    StoreAway,
)
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.inbox.ledger import Ledger
from cosmos_outbox.inbox.stored import effect_id
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.errors import UnknownContinuation
from cosmos_outbox.sqlite.database import Database
from cosmos_outbox.sqlite.effects import SqliteEffectList, SqliteLedger
from devstack.testing import Service
from tests.support.azure import EFFECTS, contacts_database
from tests.support.effects import RULES, Clock, FakeLedger, Outbound, inbox_over
from tests.support.emulators import Gap
from tests.support.inbox import KEY, event
from tests.support.losses import Failing, Fate, Loss, ProcessDied
from tests.support.short_pages import shorten_pages

SUBSCRIBER = "mails"


@dataclass(frozen=True)
class Desk:
    """An operator's desk over a subscriber that runs no effect twice by itself."""

    operator: EffectOperator
    outbound: Outbound
    clock: Clock

    @property
    def inbox(self) -> EffectInbox:
        return self.operator.inbox

    async def all(self, size: int = 100) -> list[OpenEffect]:
        found: list[OpenEffect] = []
        token = None
        while True:
            page = await self.operator.page(size, token)
            assert len(page.items) <= size
            found += page.items
            token = page.continuation_token
            if token is None:
                return found

    async def told(self) -> list[tuple[int | None, str, int]]:
        return [(each.mark.sequence, each.mark.state.value, each.mark.failures) for each in await self.all()]

    async def state(self, sequence: int) -> MarkState:
        mark = (await self.inbox.ledger.read(KEY, event(sequence).id, fenced=True)).mark
        assert mark is not None
        return mark.state


def of(sequence: int, key: AggregateKey = KEY) -> str:
    return effect_id(SUBSCRIBER, key, event(sequence, key=key).id)


@pytest.fixture(params=["devstack", "sqlite"])
async def desk(request: pytest.FixtureRequest, cosmos_server: Service, tmp_path: Path) -> AsyncIterator[Desk]:
    if request.param == "sqlite":
        file = Database(tmp_path / "store.db")
        yield desk_over(SqliteLedger(file, SUBSCRIBER, 600), SqliteEffectList(file, SUBSCRIBER))
        await file.close()
        return
    async with (
        contacts_database(cosmos_server) as database,
        CosmosClient.from_connection_string(cosmos_server.connection_string) as client,
    ):
        container = Container(client, database.id, EFFECTS)
        yield desk_over(
            CosmosLedger(container, SUBSCRIBER, 600), CosmosEffectList(container, SUBSCRIBER, "here")
        )


def desk_over(ledger: Ledger, effects: EffectList) -> Desk:
    outbound, clock = Outbound(), Clock()
    inbox = inbox_over(ledger, outbound, clock, replace(RULES, unsure=Unsure.SET_ASIDE))
    return Desk(EffectOperator(inbox, effects), outbound, clock)


async def test_what_waits_and_what_may_have_been_handled_is_listed_and_nothing_else(desk: Desk) -> None:
    desk.outbound.raises = [
        None,
        ConnectionResetError("johndoe@contoso.com"),
        EffectNotDone("no such address"),
    ]
    for sequence in (1, 2, 3, 6):
        desk.clock.pass_by(seconds=1)
        await desk.inbox.handle(event(sequence))
    assert await desk.told() == [
        (2, "may have been handled", 0), (3, "waiting", 1), (6, "waiting", 0)
    ]  # fmt: skip
    listed = await desk.all()
    assert [each.id for each in listed] == [of(2), of(3), of(6)]
    assert {(each.aggregate, each.action, each.event) for each in listed} == {(KEY, "Changed", None)}
    assert listed[1].mark.reason == "no such address"
    assert "johndoe" not in listed[0].mark.reason


async def test_a_list_goes_on_page_by_page_also_among_effects_of_one_time(desk: Desk) -> None:
    keys = [AggregateKey("thing", str(number)) for number in range(7)]
    for key in keys:
        await desk.inbox.handle(event(2, key=key))
    for size in (1, 3, 7):
        listed = await desk.all(size)
        assert sorted(each.aggregate for each in listed) == keys
    with pytest.raises(UnknownContinuation):
        await desk.operator.page(2, "of-another-list")


async def test_a_page_of_the_store_that_ends_early_is_not_the_end_of_the_list(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(7):
        await desk.inbox.handle(event(2, key=AggregateKey("thing", str(number))))
    shorten_pages(monkeypatch)
    for size in (3, 50):
        assert len(await desk.all(size)) == 7


async def test_an_effect_is_listed_as_started_once_its_process_must_have_died(desk: Desk) -> None:
    class Died(BaseException):
        pass

    desk.outbound.raises = [Died()]  # type: ignore[list-item]  # a process that dies raises to nobody
    with pytest.raises(Died):
        await desk.inbox.handle(event(1))
    assert await desk.told() == []
    desk.clock.pass_by(seconds=RULES.call_seconds + 1)
    assert await desk.told() == [(1, "started", 0)]
    with pytest.raises(NotApplied, match="the broker brings it again"):
        await desk.operator.apply(of(1))
    await desk.operator.discard(of(1), "the mail was seen")
    assert await desk.state(1) is MarkState.DISCARDED


async def test_only_one_that_is_asked_for_shows_its_event(desk: Desk) -> None:
    desk.outbound.raises = [ConnectionResetError()]
    await desk.inbox.handle(event(1))
    await desk.inbox.handle(event(3))
    assert (await desk.operator.show(of(1))).event == event(1)
    assert (await desk.operator.show(of(3))).event == event(3)
    for unknown in (of(2), of(1, AggregateKey("thing", "other"))):
        with pytest.raises(NotSetAside):
            await desk.operator.show(unknown)


async def test_what_may_have_been_handled_is_run_again_once_and_is_then_over(desk: Desk) -> None:
    desk.outbound.raises = [ConnectionResetError()]
    await desk.inbox.handle(event(1))
    await desk.inbox.handle(event(2))
    await desk.inbox.handle(event(1))
    assert desk.outbound.asked == [event(1).id, event(2).id], "not by itself"
    with pytest.raises(NotApplied, match="give the reason"):
        await desk.operator.apply(of(1))  # by who saw it wait, and does not know what happened since
    assert desk.outbound.asked == [event(1).id, event(2).id]
    await desk.operator.apply(of(1), "in no log")
    assert desk.outbound.asked[2:] == [event(1).id]
    assert await desk.state(1) is MarkState.HANDLED
    with pytest.raises(NotSetAside):
        await desk.operator.apply(of(1), "r")
    mark = (await desk.inbox.ledger.read(KEY, event(1).id, fenced=True)).mark
    assert mark is not None
    assert mark.reason == "run again by an operator: in no log"
    assert (mark.kept, mark.waits) == (None, None), "the event is not kept any longer"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (EffectNotDone("no such address"), NotApplied),
        (OSError(), NotApplied),
        (EffectAway("busy"), EffectAway),
    ],
)
async def test_what_fails_again_stays_open(desk: Desk, error: Exception, told: type[Exception]) -> None:
    desk.outbound.raises = [ConnectionResetError(), error, None]
    await desk.inbox.handle(event(1))
    with pytest.raises(told):
        await desk.operator.apply(of(1), "r")
    assert await desk.told() == [(1, "may have been handled", 1)]
    await desk.operator.apply(of(1), "r")
    assert await desk.state(1) is MarkState.HANDLED


async def test_of_two_operators_one_runs_the_effect_until_its_call_must_have_ended(desk: Desk) -> None:
    class Died(BaseException):
        pass

    desk.outbound.raises = [ConnectionResetError(), Died()]  # type: ignore[list-item]
    await desk.inbox.handle(event(1))
    with pytest.raises(Died):
        await desk.operator.apply(of(1), "r")
    for call in (desk.operator.apply(of(1), "r"), desk.operator.discard(of(1), "r")):
        with pytest.raises(EffectRunning):
            await call
    await desk.inbox.handle(event(1))
    assert len(desk.outbound.asked) == 2, "a message that comes again meanwhile runs nothing"
    desk.clock.pass_by(seconds=RULES.call_seconds)
    await desk.operator.apply(of(1), "r")
    assert await desk.state(1) is MarkState.HANDLED


async def test_an_effect_whose_event_only_a_message_had_can_be_given_up_and_not_be_run(desk: Desk) -> None:
    lost = Mark(event(1).id, MarkState.UNCERTAIN, 1, desk.clock())
    await desk.inbox.ledger.write(KEY, EffectMarker(last=1), lost)
    assert (await desk.operator.show(of(1))).event is None
    with pytest.raises(NotApplied, match="was not kept"):
        await desk.operator.apply(of(1), "r")
    await desk.operator.discard(of(1), "nobody knows")
    assert await desk.state(1) is MarkState.DISCARDED


async def test_what_may_have_been_handled_is_given_up_with_a_reason(desk: Desk) -> None:
    desk.outbound.raises = [ConnectionResetError()]
    await desk.inbox.handle(event(1))
    await desk.operator.discard(of(1), "the mail was seen")
    mark = (await desk.inbox.ledger.read(KEY, event(1).id, fenced=True)).mark
    assert mark is not None
    assert (mark.state, mark.kept) == (MarkState.DISCARDED, None)
    assert mark.reason == "the mail was seen (it may have been handled)"
    with pytest.raises(NotSetAside):
        await desk.operator.discard(of(1), "again")


async def test_what_waits_for_a_missing_event_has_its_turn_after_the_place_is_given_up(desk: Desk) -> None:
    await desk.inbox.handle(event(3))
    for call in (desk.operator.apply(of(3)), desk.operator.discard(of(3), "r")):
        with pytest.raises(NotInTurn):
            await call
    await desk.operator.pass_missing(of(3), "its publisher lost them")
    assert desk.outbound.asked == []
    await desk.operator.apply(of(3))
    assert desk.outbound.asked == [event(3).id]
    assert await desk.told() == []


async def test_a_place_that_has_an_event_is_not_given_up_as_missing(desk: Desk) -> None:
    await desk.inbox.handle(event(2))
    await desk.inbox.handle(event(3))
    with pytest.raises(NotInTurn, match="an event waits for place 2"):
        await desk.operator.pass_missing(of(3), "r")
    assert (await desk.inbox.ledger.read(KEY, "none", fenced=True)).marker.last == 1, "place 1 was missing"


@pytest.mark.known_gap(Gap.BATCH_IGNORES_ETAG)
@pytest.mark.parametrize("loss", Loss)
async def test_whatever_write_of_an_operators_call_is_lost_the_effect_ends_as_handled(
    cosmos_server: Service, loss: Loss
) -> None:
    async with (
        contacts_database(cosmos_server) as database,
        CosmosClient.from_connection_string(cosmos_server.connection_string) as client,
    ):
        struck, write, most = True, 0, 0
        while struck:
            write += 1
            key, outbound, clock = AggregateKey("thing", str(write)), Outbound(), Clock()
            fate = Fate(loss, 0)

            def start(
                fate: Fate = fate, outbound: Outbound = outbound, clock: Clock = clock
            ) -> EffectOperator:
                container = Failing(client, database.id, EFFECTS)
                container.fate = fate
                ledger = CosmosLedger(container, SUBSCRIBER, 600)
                inbox = inbox_over(ledger, outbound, clock, replace(RULES, unsure=Unsure.SET_ASIDE))
                return EffectOperator(inbox, CosmosEffectList(container, SUBSCRIBER, "here"))

            operator = start()
            outbound.raises = [ConnectionResetError()]
            await operator.inbox.handle(event(1, key=key))
            fate.write, fate.writes = write, 0
            for _ in range(4):
                try:
                    await operator.apply(of(1, key), "r")
                except NotSetAside:
                    break  # it is over
                except ProcessDied:
                    operator = start()
                except InboxError:
                    pass
                await start(Fate(loss, 0)).inbox.handle(event(1, key=key))
                clock.pass_by(seconds=RULES.call_seconds)
            struck = fate.struck
            mark = (await start(Fate(loss, 0)).inbox.ledger.read(key, event(1, key=key).id, fenced=True)).mark
            assert mark is not None
            assert (mark.state, mark.kept) == (MarkState.HANDLED, None), f"write {write}"
            most = max(most, len(outbound.asked) - 1)
        assert write > 3, "so many writes has the call at least"
        assert most == (2 if loss is Loss.DIED_BEFORE else 1), (
            "again only where the process died before the record"
        )


@pytest.mark.parametrize(
    ("raised", "told"),
    [(None, "was run: do not apply it again, but discard it"), (EffectNotDone(), "failed")],
)
async def test_an_effect_that_could_not_be_recorded_is_not_called_undone(
    raised: Exception | None, told: str
) -> None:
    class Away(FakeLedger):
        away = False

        async def write(self, key: AggregateKey, marker: EffectMarker, mark: Mark) -> SeenMark:
            if self.away:
                raise StoreAway("the store is away: try again later")
            return await super().write(key, marker, mark)

    class Effects:
        async def page(self, size: int, continuation_token: str | None, died_before: datetime) -> EffectPage:
            raise NotImplementedError

        async def get(self, effect_id: str) -> OpenEffect:
            mark = (await ledger.read(KEY, event(1).id, fenced=True)).mark
            assert mark is not None
            return OpenEffect(effect_id, KEY, "ThingMade", mark, mark.kept)

    async def effect(_: Event) -> None:
        ledger.away = True
        if raised is not None:
            raise raised

    ledger = Away()
    hurried = replace(RULES, effect_seconds=0.05, call_seconds=0.25, unsure=Unsure.SET_ASIDE)
    inbox = inbox_over(ledger, Outbound(raises=[ConnectionResetError()]), Clock(), hurried)
    await inbox.handle(event(1))
    operator = EffectOperator(replace(inbox, effect=effect), Effects())
    with pytest.raises(StoreAway, match=told):
        await operator.apply("any", "r")
