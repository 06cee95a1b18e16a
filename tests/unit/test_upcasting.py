"""A subscriber gets each event in the version that it is written for, or its message waits: it never has to guess."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from cosmos_outbox import (
    After,
    Aggregate,
    AggregateState,
    EntryForm,
    Event,
    Named,
    Names,
    NoSource,
    Service,
    SqliteFile,
    SubscriberService,
    Timestamp,
    TolerantReader,
)
from cosmos_outbox.errors import ReactionRefused
from cosmos_outbox.inbox.errors import EffectNotDone, NotApplied
from cosmos_outbox.inbox.upcasting import Upcasting
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.testing import in_memory, message

Data = dict[str, Any]

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def cents(data: Data) -> Data:
    """Version 1 told the price in whole euros."""
    return {**data, "price": data["price"] * 100}


def with_currency(data: Data) -> Data:
    """Version 2 told no currency."""
    return {**data, "price": {"amount": data["price"], "currency": "EUR"}}


STEPS = {"Sold": {1: cents, 2: with_currency}}


def event(data: Data, version: int | None, action: str = "Sold") -> Event:
    return Event("e-1", AggregateKey("car", "1"), action, 1, NOON, data, schema_version=version)


@pytest.mark.parametrize(
    ("version", "price"), [(1, 5), (2, 500), (3, {"amount": 500, "currency": "EUR"}), (None, 5)]
)
def test_every_known_version_becomes_the_newest(version: int | None, price: object) -> None:
    """One without a version is of the first: it was stored before versions were told, or by others."""
    given = event({"price": price, "by": "Ada"}, version)
    got = Upcasting(STEPS)(given)
    assert got.data == {"price": {"amount": 500, "currency": "EUR"}, "by": "Ada"}
    assert got.schema_version == 3
    assert (got.id, got.sequence, got.aggregate) == (given.id, given.sequence, given.aggregate)


def test_a_newer_version_is_refused_with_what_to_do() -> None:
    with pytest.raises(
        NotApplied, match=r"Sold e-1 has version 4, and this subscriber knows 3: deploy one that"
    ):
        Upcasting(STEPS)(event({}, 4))


def test_an_event_that_is_known_in_version_1_alone_is_declared_without_a_step() -> None:
    upcast = Upcasting({"Sold": {}})
    for version in (1, None):
        given = event({"price": 5}, version)
        assert upcast(given) is given, "nothing of it is copied, and it tells what it told"
    with pytest.raises(NotApplied, match="has version 2, and this subscriber knows 1"):
        upcast(event({}, 2))


def test_what_is_not_named_is_taken_as_it_is() -> None:
    given = event({"price": 5}, 7, "Bought")
    assert Upcasting(STEPS)(given) is given


def test_a_version_whose_step_was_taken_away_is_refused() -> None:
    with pytest.raises(NotApplied, match="Sold e-1 has version 1, and upcast begins at 2: declare the steps"):
        Upcasting({"Sold": {2: with_currency}})(event({"price": 5}, 1))


@pytest.mark.parametrize("version", [-1, 0])
def test_a_version_that_cannot_be_is_no_reason_to_stumble(version: int) -> None:
    """Whatever somebody else wrote into the property."""
    upcast = Upcasting({"Sold": {}})
    if version:
        with pytest.raises(NotApplied, match="has version -1, and upcast begins at 1"):
            upcast(event({"price": 5}, version))
    else:
        assert upcast(event({"price": 5}, version)).data == {"price": 5}


def test_a_step_that_fails_tells_where_and_nothing_personal() -> None:
    with pytest.raises(
        NotApplied, match="the step from version 1 of Sold failed for e-1: KeyError in cents"
    ) as told:
        Upcasting(STEPS)(event({"buyer": "Ada"}, 1))
    assert "Ada" not in str(told.value)


def test_a_step_that_changes_what_it_is_given_changes_no_event() -> None:
    """The event is tried again, and would pass the step twice."""

    def impure(data: Data) -> Data:
        data["lines"].append("by a step")
        return data

    given = event({"lines": []}, 1)
    upcast = Upcasting({"Sold": {1: impure}})
    assert upcast(given).data == upcast(given).data == {"lines": ["by a step"]}
    assert given.data == {"lines": []}


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        (
            {1: cents, 3: cents},
            "upcast of Sold has no step from version 2: events of version 1 would end there",
        ),
        ({0: cents, 1: cents}, "upcast of Sold has a step from version 0: versions begin at 1"),
    ],
)
def test_a_gap_is_found_when_it_is_declared(steps: Mapping[int, Callable[[Data], Data]], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Upcasting({"Sold": steps})


# --- where it is declared ------------------------------------------------------------------------------------------


class Row(TolerantReader):
    amount: int


def project(row: Row, told: Event) -> After[Row] | None:
    return After(Row(amount=told.data["price"]["amount"]))


def first(told: Event) -> Row:
    return Row(amount=told.data["price"]["amount"])


FORM = EntryForm(Row, search={}, sorted_by=[])


class CarState(AggregateState):
    id: str
    created_at: Timestamp
    price: int


class CarTells(TolerantReader):
    price: int


class Car(Aggregate[CarState]):
    aggregate_type, state_type = "car", CarState
    created_event, created_tells = "CarMade", CarTells
    changed_events = {"price": "CarPriced"}  # noqa: RUF012 - as users write it

    @property
    def aggregate_id(self) -> str:
        return self.state.id


def dealer() -> SubscriberService:
    return SubscriberService("dealer", SqliteFile(Named("DEALER", "dealer.db")), topic="cars")


async def test_a_read_model_of_another_team_gets_old_and_new_in_one_form() -> None:
    service = dealer()
    board = service.read_model(
        "board", of="car", form=FORM, project=project, source=NoSource(first), upcast=STEPS
    )
    async with in_memory(service) as memory:
        aside = await memory.deliver(
            message(("car", "1"), "Sold", 1, data={"price": 5}),
            message(("car", "1"), "Sold", 2, data={"price": 700}, schema_version=2),
        )
        assert aside == []
        entry = await memory.entry(board, "1")
        assert entry is not None
        assert (entry.state, entry.last_sequence) == (Row(amount=700), 2)


async def test_an_event_that_is_too_new_waits_and_is_applied_by_who_knows_it() -> None:
    """It is set aside with its reason, not dropped, and nothing that comes after it is applied in its place."""
    service, newer = dealer(), dealer()
    old = service.read_model(
        "board", of="car", form=FORM, project=project, source=NoSource(first), upcast=STEPS
    )
    knows = {"Sold": {**STEPS["Sold"], 3: lambda data: {"price": data["price"], "cents": 0}}}
    newer.read_model("board", of="car", form=FORM, project=project, source=NoSource(first), upcast=knows)
    told = [
        message(("car", "1"), "Sold", 1, data={"price": 5}),
        message(("car", "1"), "Sold", 2, data={"price": {"amount": 900}}, schema_version=4),
    ]
    async with in_memory(service) as memory:
        [record] = await memory.deliver(*told)
        assert "has version 4, and this subscriber knows 3" in record.reason
        assert record.state.value == "waiting"
        entry = await memory.entry(old, "1")
        assert entry is not None
        assert entry.last_sequence == 1
    async with in_memory(newer) as memory:
        assert await memory.deliver(*told) == []


async def test_an_effect_of_an_event_that_is_too_new_surely_did_not_take_place() -> None:
    service = dealer()
    seen: list[Any] = []

    @service.effect("mails", of="car", repeatable=False, upcast=STEPS)
    async def mail(told: Event) -> None:
        seen.append(told.data["price"])

    async with in_memory(service) as memory:
        await memory.deliver(
            message(("car", "1"), "Sold", 1, data={"price": 5}),
            message(("car", "1"), "Sold", 2, data={}, schema_version=9),
        )
    assert seen == [{"amount": 500, "currency": "EUR"}]
    [declared] = service.subscribers
    with pytest.raises(EffectNotDone, match="has version 9, and this subscriber knows 3"):
        await declared.run(event({}, 9))  # type: ignore[union-attr]  # it is the effect


async def test_a_step_with_a_bug_tells_nothing_personal() -> None:
    service = dealer()

    @service.effect("mails", of="car", upcast={"Sold": {1: lambda data: {"n": int(data["name"])}}})
    async def mail(told: Event) -> None:
        raise AssertionError("it is not reached")

    with pytest.raises(EffectNotDone) as caught:
        await mail.run(event({"name": "Ada Lovelace"}, 1))
    assert "Ada" not in str(caught.value)


async def test_a_reaction_finds_its_target_in_the_known_version() -> None:
    service = Service("garage", [Car], Names(database="garage", container="garage", topic="garage-events"))

    def renamed(data: Data) -> Data:
        return {"carId": data["car"], "price": data["price"]}

    @service.reaction(
        "offers", of="offer", to=Car, order="any", target=lambda told: str(told.data["carId"]),
        upcast={"OfferMade": {1: renamed}},
    )  # fmt: skip
    def offered(car: Car | None, told: Event) -> Car:
        if car is not None:
            raise ReactionRefused("there is one")
        state = CarState(id=told.data["carId"], created_at=told.created_at, price=told.data["price"])
        return Car(state, is_new=True)

    async with in_memory(service) as memory:
        old = message(("offer", "o-1"), "OfferMade", 1, data={"car": "c-1", "price": 3})
        new = message(("offer", "o-2"), "OfferMade", 1, data={"carId": "c-2", "price": 4}, schema_version=2)
        newer = message(("offer", "o-3"), "OfferMade", 1, data={"for": "c-3"}, schema_version=3)
        [record] = await memory.deliver(old, new, newer)
        assert "has version 3, and this subscriber knows 2" in record.reason
        assert [each.aggregate.id for each in memory.events] == ["c-1", "c-2"]


async def test_a_message_of_a_reaction_that_is_too_new_stays_open_and_stops_no_other() -> None:
    """Nobody can mark it as given up, since its target is not known: one that knows it may be applying it now."""
    service = Service("garage", [Car], Names(database="garage", container="garage", topic="garage-events"))

    @service.reaction(
        "offers", of="offer", to=Car, order="any", target=lambda told: str(told.data["carId"]),
        upcast={"OfferMade": {}},
    )  # fmt: skip
    def offered(car: Car | None, told: Event) -> None:
        raise ReactionRefused("nobody wants it")

    async with in_memory(service) as memory:
        newer = message(("offer", "o-1"), "OfferMade", 1, data={"for": "c-1"}, schema_version=2)
        refused = message(("offer", "o-2"), "OfferMade", 1, data={"carId": "c-2"})
        await memory.deliver(newer, refused)
        retrier = service().subscriptions["offers"].subscriber.retrier
        records = (await retrier.page(10, None)).items
        open_before = {str(record.aggregate): record.id for record in records}
        with pytest.raises(NotApplied, match="has version 2, and this subscriber knows 1"):
            await retrier.discard(open_before["offer o-1"], "not wanted")
        memory.clock.pass_by(days=11)
        await retrier.run(seconds=60)
        assert [record.id for record in (await retrier.page(10, None)).items] == [open_before["offer o-1"]]


def test_a_gap_is_found_where_the_subscriber_is_declared() -> None:
    gap = {"Sold": {1: cents, 3: cents}}
    for declare in (
        lambda: dealer().effect("mails", of="car", upcast=gap),
        lambda: dealer().read_model(
            "b", of="car", form=FORM, project=project, source=NoSource(first), upcast=gap
        ),
    ):
        with pytest.raises(ValueError, match="has no step from version 2"):
            declare()
