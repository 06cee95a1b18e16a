"""A history tells each change once, in order and without a gap, and nothing that the aggregate does not show."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID, uuid4

import pytest

from cosmos_outbox import Origin, WireModel
from cosmos_outbox.http import Resource
from cosmos_outbox.http.calls import Call, calls
from cosmos_outbox.http.message import Answer, Headers, Request
from cosmos_outbox.testing import InMemory, in_memory
from tests.support.tasks import Details, Owner, Place, Task, service, tasks

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
DETAILS = Details(title="Water", place=Place(room="Hall"))


@dataclass
class Asked:
    """A service in memory whose history is asked for."""

    memory: InMemory
    call: Call

    async def history(self, task: UUID | str, query: str = "", **headers: str) -> Answer:
        url = f"http://localhost/api/tasks/{task}/history{query}"
        return await self.call.handler(Request("GET", url, Headers(headers), {"id": str(task)}, b"", "/api"))

    async def told(self, task: UUID, query: str = "") -> dict[str, Any]:
        answer = await self.history(task, query)
        assert answer.status == 200, answer.body
        found: dict[str, Any] = json.loads(answer.body)
        return found

    async def create(self, details: Details = DETAILS) -> UUID:
        made = Task.create(details, at=NOON)
        await service().aggregates.create(made, Origin("c", caused_by="a digest"))
        return UUID(made.aggregate_id)

    async def change(self, task: UUID, change: Callable[[Task], None]) -> None:
        await service().aggregates.change(Task, str(task), change, Origin("c", caused_by="a digest"))

    async def rename(self, task: UUID, *titles: str) -> None:
        for number, title in enumerate(titles, start=1):
            at = NOON + timedelta(minutes=number)
            await self.change(
                task,
                lambda found, title=title, at=at: found.revise(_titled(found, title), at=at),  # type: ignore[misc]  # bound at once
            )


def _titled(found: Task, title: str) -> Details:
    return tasks.current(found).model_copy(update={"title": title})


@asynccontextmanager
async def asking(resource: Resource[Any, Any] = tasks) -> AsyncIterator[Asked]:
    async with in_memory(service, now=NOON) as memory:
        yield Asked(memory, next(each for each in calls(service, [resource]) if each.is_history))


@pytest.fixture
async def asked() -> AsyncIterator[Asked]:
    async with asking() as made:
        yield made


async def test_a_history_tells_the_newest_first_what_each_change_has_changed(asked: Asked) -> None:
    task = await asked.create()
    await asked.change(task, lambda each: each.give(Owner(name="Ann"), at=NOON + timedelta(hours=1)))
    moved = Details(title="Water", note="the big one", place=Place(room="Attic", floor=2))
    await asked.change(task, lambda each: each.revise(moved, at=NOON + timedelta(hours=2)))
    assert await asked.told(task) == {
        "items": [
            {"sequence": 4, "at": "2026-03-01T14:00:00Z", "type": "TaskMoved", "changes": [
                {"field": "place", "from": {"room": "Hall", "floor": None}, "to": {"room": "Attic", "floor": 2}},
            ]},
            {"sequence": 3, "at": "2026-03-01T14:00:00Z", "type": "TaskNoteChanged", "changes": [
                {"field": "note", "from": None, "to": "the big one"},
            ]},
            {"sequence": 2, "at": "2026-03-01T13:00:00Z", "type": "TaskGiven", "changes": [
                {"field": "owner", "to": "Ann"},
            ]},
            {"sequence": 1, "at": "2026-03-01T12:00:00Z", "type": "TaskCreated", "changes": [
                {"field": "title", "to": "Water"}, {"field": "place", "to": {"room": "Hall", "floor": None}},
            ]},
        ],
        "completeFrom": 1, "continuationToken": None, "nextLink": None,
    }  # fmt: skip


async def test_pages_lead_down_to_the_creation_whatever_is_written_meanwhile(asked: Asked) -> None:
    task, other = await asked.create(), await asked.create()
    await asked.rename(task, *(f"title {number}" for number in range(2, 8)))
    await asked.rename(other, *(f"other {number}" for number in range(2, 8)))
    seen, query = list[dict[str, Any]](), "?pageSize=3"
    while query:
        page = await asked.told(task, query)
        seen += page["items"]
        assert page["completeFrom"] == page["items"][-1]["sequence"]
        next_link = page["nextLink"] or ""
        assert not next_link or next_link.startswith(f"/api/tasks/{task}/history?pageSize=3&")
        assert parse_qs(urlsplit(next_link).query).get("continuationToken", [None]) == [
            page["continuationToken"]
        ]
        query = next_link and f"?{urlsplit(next_link).query}"
        await asked.rename(task, f"later {len(seen)}")
    assert [each["sequence"] for each in seen] == [7, 6, 5, 4, 3, 2, 1]
    assert [each["changes"][0]["from"] for each in seen[:-1]] == [
        *(f"title {number}" for number in range(6, 1, -1)), "Water",
    ]  # fmt: skip


async def test_when_events_have_expired_the_history_begins_later_and_says_so(asked: Asked) -> None:
    task = await asked.create()
    await asked.rename(task, "two")
    asked.memory.clock.pass_by(days=10)
    await asked.rename(task, "three", "four")
    page = await asked.told(task)
    assert [(each["sequence"], each["changes"]) for each in page["items"]] == [
        (4, [{"field": "title", "from": "three", "to": "four"}]),
        (3, [{"field": "title", "to": "three"}]),
    ]
    assert (page["completeFrom"], page["continuationToken"]) == (3, None)

    asked.memory.clock.pass_by(days=10)
    empty = await asked.told(task)
    assert (empty["items"], empty["completeFrom"], empty["continuationToken"]) == ([], 5, None)


async def test_behind_a_gap_nothing_is_told(asked: Asked) -> None:
    task = await asked.create()
    await asked.rename(task, "two", "three", "four")
    gone = next(each for each in asked.memory.events if each.sequence == 2)
    asked.memory.put({**gone.document, "type": "gone"})
    page = await asked.told(task)
    assert [each["sequence"] for each in page["items"]] == [4, 3]
    assert (page["completeFrom"], page["continuationToken"]) == (3, None)


async def test_a_deleted_task_has_no_history_and_neither_has_one_that_never_was(asked: Asked) -> None:
    task = await asked.create()
    await asked.change(task, lambda each: each.delete(at=NOON))
    for wanted in (task, uuid4(), "no-uuid"):
        assert (await asked.history(wanted)).status == 404
        assert (await asked.history(wanted, **{"Cache-Control": "no-cache"})).status == 404


async def test_who_has_caused_a_change_and_what_became_of_it_is_not_told(asked: Asked) -> None:
    task = await asked.create()
    [event] = asked.memory.events
    assert event.data["causedBy"] == "a digest"
    answer = await asked.history(task)
    assert set(json.loads(answer.body)["items"][0]) == {"sequence", "at", "type", "changes"}
    assert b"digest" not in answer.body
    assert event.id.encode() not in answer.body


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("?pageSize=0", "pageSize"),
        ("?pageSize=101", "pageSize"),
        ("?before=3", "before"),
        ("?sort=created", "sort"),
        ("?continuationToken=", "continuationToken"),
        ("?continuationToken=Zm9yZ2Vk", "continuationToken"),
    ],
)
async def test_a_query_that_cannot_be_is_refused(asked: Asked, query: str, field: str) -> None:
    answer = await asked.history(await asked.create(), query)
    assert (answer.status, json.loads(answer.body)["errors"][0]["field"]) == (400, field)


async def test_a_token_leads_on_in_its_own_history_alone(asked: Asked) -> None:
    task, other = await asked.create(), await asked.create()
    await asked.rename(task, "two")
    token = (await asked.told(task, "?pageSize=1"))["continuationToken"]
    assert (await asked.history(other, f"?continuationToken={token}")).status == 400
    assert [
        each["sequence"] for each in (await asked.told(task, f"?continuationToken={token}"))["items"]
    ] == [1]


async def test_while_the_store_is_away_no_part_is_told_for_the_whole(asked: Asked) -> None:
    task = await asked.create()
    asked.memory.faults.unavailable()
    assert (await asked.history(task)).headers["Retry-After"]
    asked.memory.faults.throttled()
    assert (await asked.history(task)).status == 429
    found = await service().aggregates.read(Task, str(task), Origin("c"))
    asked.memory.faults.unavailable()
    with pytest.raises(Exception, match="on purpose"):
        await service().outbox.changes.page(found.aggregate.key, 1, 10, None)
    assert len((await asked.told(task))["items"]) == 1


async def test_a_condition_that_a_history_cannot_keep_is_refused(asked: Asked) -> None:
    task = await asked.create()
    assert (await asked.history(task, **{"If-None-Match": '"1"'})).status == 400


class Room(WireModel):
    room: str


class OnTheDoor(WireModel):
    title: str
    place: Room | None


async def test_only_what_callers_see_of_the_aggregate_is_told_of_its_past() -> None:
    async with asking(replace(tasks, view=OnTheDoor)) as asked:
        task = await asked.create(Details(title="Water", note="secret", place=Place(room="Hall", floor=3)))
        await asked.change(task, lambda each: each.give(Owner(name="Ann"), at=NOON))
        given, created = (await asked.told(task))["items"]
        assert (given["type"], given["changes"]) == ("TaskGiven", [])
        assert created["changes"] == [
            {"field": "title", "to": "Water"},
            {"field": "place", "to": {"room": "Hall"}},
        ]


async def test_a_value_of_another_form_is_not_told_and_its_change_is(asked: Asked) -> None:
    task = await asked.create()
    await asked.rename(task, "two")
    event = asked.memory.events[-1]
    asked.memory.put({**event.document, "data": {**event.data, "title": {"de": "zwei"}}})
    assert (await asked.told(task))["items"][0]["changes"] == [{"field": "title", "from": "Water"}]


def test_a_history_of_what_only_a_function_shows_is_refused() -> None:
    with pytest.raises(TypeError, match="tasks: a history shows the properties of a model"):
        replace(tasks, view=lambda task: {"title": task.state.title})


def test_without_the_word_there_is_no_history() -> None:
    assert not [each for each in calls(service, [replace(tasks, history=False)]) if each.is_history]


class Seat(WireModel):
    seat_number: int


class WithSeats(WireModel):
    place: dict[str, Seat] | None


async def test_a_value_is_told_by_its_names_on_the_wire_however_deep_they_stand() -> None:
    async with asking(replace(tasks, view=WithSeats)) as asked:
        task = await asked.create(Details(title="Water"))
        [event] = asked.memory.events
        seats = {"left": {"seatNumber": 1}}
        for stored, told in ((seats, {"to": seats}), ({"left": {"seat_number": 1}}, {})):
            asked.memory.put({**event.document, "data": {**event.data, "place": stored}})
            assert (await asked.told(task))["items"][0]["changes"] == [{"field": "place", **told}]


async def test_what_an_event_tells_again_is_no_change(asked: Asked) -> None:
    task = await asked.create()
    await asked.rename(task, "two")
    event = asked.memory.events[-1]
    same = {"room": "Hall", "floor": None}
    asked.memory.put({**event.document, "data": {**event.data, "place": same}})
    assert (await asked.told(task))["items"][0]["changes"] == [
        {"field": "title", "from": "Water", "to": "two"}
    ]
