"""A mistake in a declaration is an error where it is made, which says what is wrong and what to write instead."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel

from cosmos_outbox import (
    Aggregate,
    AggregateState,
    DomainEvent,
    EntrySchema,
    ExistingContainer,
    Names,
    Origin,
    Service,
    Timestamp,
)
from tests.support.contacts import NOON

ID = UUID(int=1)


class Title(BaseModel):
    title: str


class TalkState(AggregateState):
    id: UUID
    created_at: Timestamp
    title: str


class Talk(Aggregate[TalkState]):
    aggregate_type = "talk"
    state_type = TalkState
    created_event = "TalkPlanned"
    created_payload = Title
    changed_events: ClassVar[Mapping[str, str]] = {"title": "TalkRenamed"}

    @property
    def aggregate_id(self) -> str:
        return str(self.state.id)


class TalkHeld(DomainEvent):
    action: Literal["TalkHeld"] = "TalkHeld"
    talk_id: UUID


class RoomCleaned(DomainEvent):
    action: Literal["RoomCleaned"] = "RoomCleaned"


def form(**changed: Any) -> EntrySchema[Title]:
    given: dict[str, Any] = {"model": Title, "search": {"title": str}, "sorted_by": ["title"]}
    return EntrySchema(**given | changed)


def talks(**changed: Any) -> Service:
    return Service(**{"name": "talks", "aggregates": [Talk]} | changed)


async def awaited(event: Any) -> None:
    """Does nothing."""


def called(event: Any) -> None:
    """Does nothing."""


async def awaited_with_two(one: Any, event: Any) -> None:
    """Does nothing."""


def called_with_two(one: Any, event: Any) -> None:
    """Does nothing."""


def read_model(**changed: Any) -> object:
    given: dict[str, Any] = {
        "of": Talk,
        "form": form(),
        "project": called_with_two,
        "state_of": called,
    } | changed
    return talks().read_model("list", **given)


def reaction(react: Any = called_with_two, **changed: Any) -> object:
    given: dict[str, Any] = {"of": "order", "to": Talk, "target": called, "order": "any"} | changed
    return talks().reaction("plan", **given)(react)


def effect(run: Any = awaited, name: str = "mail", **changed: Any) -> object:
    return talks().effect(name, of=Talk, **changed)(run)


def state_with(annotation: Any) -> object:
    class State(TalkState):
        tags: annotation

    return type("Tagged", (Talk,), {"state_type": State})


def aggregate_without(name: str) -> Service:
    body = {"aggregate_type": "talk", "state_type": TalkState, "aggregate_id": Talk.aggregate_id}
    events = {"created_event": "HalfMade", "created_payload": Title}
    del body[name]
    return talks(aggregates=[type("Half", (Aggregate,), body | events)])


def raised(event: type[DomainEvent], **fields: Any) -> object:
    talk = Talk(TalkState(id=ID, created_at=NOON, title="Sagas"), is_new=True)
    talk._raise(lambda sequence: event(sequence=sequence, created_at=NOON, **fields))
    return talk.changes()


class Renamed(Talk):
    aggregate_type = "speech"


class BadType(Talk):
    aggregate_type = "talk/1"


LINE = rf"\({__file__}:\d+\)"

MISTAKES: list[tuple[str, Callable[[], object], str]] = [
    ("effect with def", lambda: effect(called), rf"the effect mail {LINE} is awaited: write it with async def"),
    ("effect without event", lambda: effect(awaited_with_two), rf"{LINE} is called with \(event\): let it take these"),
    ("reaction with async", lambda: reaction(awaited_with_two), rf"the reaction plan {LINE} .* write it with def"),
    ("target with async", lambda: reaction(target=awaited), rf"target= of the reaction plan {LINE} .* with def"),
    ("project with async", lambda: read_model(project=awaited_with_two), rf"read model list {LINE} .* with def"),
    ("state_of with async", lambda: read_model(state_of=awaited), rf"read model list {LINE} .* with def"),
    ("first with two", lambda: read_model(first=called_with_two), rf"{LINE} is called with \(event\)"),
    ("order", lambda: reaction(order="last"), "order is 'last': take one of any, newest, each"),
    ("event misspelt", lambda: effect(on=["TalkRenamd"]), "on names TalkRenamd, .*: there are TalkPlanned, TalkRen"),
    ("event of nobody", lambda: effect(on=[TalkHeld]), r"on names TalkHeld, .* is named in Service\(events=\.\.\.\)"),
    ("on is a text", lambda: effect(on="TalkRenamed"), "on is 'TalkRenamed': give a list of events"),
    ("on is empty", lambda: effect(on=[]), r"on is \[\]: give a list of events, by class or name, or leave it out"),
    ("subscriber's name", lambda: effect(name="My mail"), "'My mail' cannot name a subscriber: take at most 40 small"),
    ("service's name", lambda: talks(name="My talks"), "'My talks' cannot name a service: take at most 40 small"),
    ("transport", lambda: talks(transport="kafka"), "transport is 'kafka': take one of servicebus, storagequeue, web"),
    ("no class", lambda: talks(aggregates=[TalkState]), "TalkState'>, which is no class derived from Aggregate"),
    ("no event", lambda: talks(events=[Title]), "Title'>, which is no class derived from DomainEvent"),
    ("one name", lambda: talks(aggregates=[Talk, Renamed]), "two events called TalkPlanned: .*, so give each its own"),
    ("type", lambda: talks(aggregates=[BadType]), "'talk/1' cannot be the type of BadType: take letters, digits"),
    ("no state_type", lambda: aggregate_without("state_type"), "Half has no state_type: write it in the class"),
    ("no type", lambda: aggregate_without("aggregate_type"), "Half has no aggregate_type: write it in the class"),
    ("no id", lambda: aggregate_without("aggregate_id"), "Half has no aggregate_id: write it in the class"),
    ("list", lambda: state_with(list[str]), r"tags of State is a list, .*: write tuple\[\.\.\.\]"),
    ("dict", lambda: state_with(dict[str, int] | None), r"tags of State is a dict, .*: write Mapping\[\.\.\.\]"),
    ("set inside", lambda: state_with(tuple[set[str], ...]), r"tags of State is a set, .*: write frozenset"),
    ("state", lambda: type("Bad", (Talk,), {"state_type": Title}), "Bad: derive Title from AggregateState, which num"),
    ("field misspelt", lambda: raised(TalkHeld, talk_id=ID, plce="B1"), "TalkHeld has no plce: add .*, or correct"),
    ("no id in event", lambda: raised(RoomCleaned), "RoomCleaned does not name its talk: add talk_id, so that a sub"),
    ("sorted by", lambda: form(sorted_by=["titel"]), "form of Title is sorted by titel, .*: there are title"),
    ("path", lambda: talks(own=ExistingContainer("tenant", {}), aggregates=[]), "'tenant' is no path of a property"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "said"), [each[1:] for each in MISTAKES], ids=[each[0] for each in MISTAKES]
)
def test_a_mistake_says_what_to_write_instead(make: Callable[[], object], said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        make()


def test_what_is_right_is_taken() -> None:
    held = Service("talks", [Talk], events=[TalkHeld])
    held.effect("mail", of=Talk, on=["TalkRenamed", TalkHeld])(awaited)
    effect()
    reaction()
    read_model()
    raised(TalkHeld, talk_id=ID)
    state_with(tuple[str, ...] | frozenset[int])


async def test_an_aggregate_that_the_service_does_not_declare_is_not_stored() -> None:
    given = {
        "COSMOS": "AccountEndpoint=http://127.0.0.1:1/;AccountKey=a2V5;",
        "SERVICEBUS": "Endpoint=sb://b",
    }
    wired = Service("others", names=Names("d", "c", "t")).wire(given)
    async with wired.resources:
        with pytest.raises(TypeError, match=r"declares no Talk: add it to Service\(aggregates=...\)"):
            await wired.aggregates.create(
                Talk(TalkState(id=ID, created_at=NOON, title=""), is_new=True), Origin("1")
            )
