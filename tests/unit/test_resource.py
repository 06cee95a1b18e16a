"""A declaration that cannot work is refused when it is made, and what it leaves out has one meaning."""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar
from uuid import UUID

import pytest

from cosmos_outbox import AggregateState, WireModel
from cosmos_outbox.http import Action, Resource
from cosmos_outbox.http.answering import status_of
from cosmos_outbox.http.calls import CallerOf, calls
from cosmos_outbox.http.message import Answer, Headers, Request
from cosmos_outbox.http.problems import InvalidRequest
from cosmos_outbox.http.validation import patched, replaced
from cosmos_outbox.outbox.aggregate import STORED
from cosmos_outbox.testing import in_memory
from tests.support.tasks import Details, Owner, Place, Task, TaskState, service, tasks

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
TASK = Task.create(
    Details(title="Water the plants", place=Place(room="Hall")),
    at=NOON,
    id=UUID("0f8fad5b-d9cb-469f-a165-70867728950e"),
)


class Other(WireModel):
    colour: str


class InRegions(Task):
    partition_key = "a-region"


@pytest.mark.parametrize(
    ("declared", "reported"),
    [
        ({"path": "/tasks"}, "without a slash before it"),
        ({"path": "tasks/"}, "without a slash before it"),
        ({"kind": InRegions}, "write its calls by hand"),
        ({"new": None}, "declare new"),
        ({"new": None, "change": None}, "declare new"),
        ({"new": None, "create": None}, "declare new"),
        ({"create": lambda details: TASK}, r"create of tasks is called with \(aggregate, id=..., at=...\)"),
        ({"change": Task.delete}, r"change of tasks is called with \(aggregate, body, at=...\)"),
        ({"delete": Task.revise}, r"delete of tasks is called with \(aggregate, at=...\)"),
        ({"new": Other}, "Other has colour, and the state has not: declare details"),
        ({"view": Other}, "Other has colour, and the state has not: make view a function"),
        (
            {"actions": [Action("give", Task.finish), Action("give", Task.delete)]},
            "two actions have one name",
        ),
    ],
)
def test_a_declaration_that_cannot_work_is_refused(declared: dict[str, Any], reported: str) -> None:
    whole: dict[str, Any] = {
        "path": "tasks", "kind": Task, "new": Details, "create": Task.create, "change": Task.revise,
        "delete": Task.delete,
    }  # fmt: skip
    with pytest.raises(TypeError, match=reported):
        Resource(**whole | declared)


@pytest.mark.parametrize(
    ("name", "run", "body"),
    [
        ("Give", Task.finish, None),
        ("a/b", Task.finish, None),
        ("give", Task.give, None),
        ("end", Task.finish, Owner),
    ],
)
def test_an_action_that_cannot_work_is_refused(name: str, run: Any, body: Any) -> None:
    with pytest.raises(TypeError):
        Action(name, run, body=body)


def test_a_filter_field_named_like_another_list_parameter_is_refused() -> None:
    class SortedState(TaskState):
        sort: str = "small"

    class SortedTask(Task):
        state_type: ClassVar[type[AggregateState]] = SortedState
        found_by: ClassVar[Sequence[str]] = ("sort",)

    with pytest.raises(TypeError, match="things: sort has another meaning in a list's query"):
        Resource("things", SortedTask)


def test_callers_see_state_and_sequence_without_the_services_own_fields() -> None:
    shown = tasks.shown(TASK)
    assert shown == {
        "id": "0f8fad5b-d9cb-469f-a165-70867728950e", "title": "Water the plants", "note": None,
        "place": {"room": "Hall", "floor": None}, "owner": None, "createdAt": "2026-03-01T12:00:00Z",
        "doneAt": None, "sequence": 0,
    }  # fmt: skip


SHOWN = {"id": "7", "title": "old", "sequence": 3}


@pytest.mark.parametrize("by", [replaced, patched])
@pytest.mark.parametrize(
    ("sent", "title"),
    [
        ({"title": "new"}, "new"),
        (SHOWN | {"title": "new"}, "new"),
        (SHOWN | {"title": "new", "sequence": 3.0}, "new"),
        (SHOWN | {"title": "x" * 101}, "x" * 101),
    ],
)
def test_what_was_read_may_be_sent_back_whole(by: Any, sent: dict[str, Any], title: str) -> None:
    """The last: as it is stored, though a rule of today forbids it."""
    current = tasks.current(Task.load(TASK.state.model_copy(update={"title": "x" * 101})))
    made = by(Details, current, SHOWN, sent)
    left_out = (None, None) if by is replaced else (current.note, current.place)
    assert (made.title, made.note, made.place) == (title, *left_out)


@pytest.mark.parametrize("by", [replaced, patched])
@pytest.mark.parametrize(
    ("sent", "fields"),
    [
        (SHOWN | {"id": "8"}, ["id"]),
        (SHOWN | {"sequence": True, "id": 2**60}, ["id", "sequence"]),
        (SHOWN | {"sequence": "3", "colour": "red", "place": {"room": ""}}, ["sequence", "place.room", "colour"]),
        (SHOWN | {"title": "x" * 101}, ["title"]),
        ({"id": None, "title": "x"}, ["id"]),
        ({"title": TASK.state.title, "title.x": 1}, ["title.x"]),
        (SHOWN | {"title.x": 1, "place.room": 2}, ["title.x", "place.room"]),
    ],
)  # fmt: skip
def test_what_cannot_be_set_and_is_changed_is_refused_by_name(
    by: Any, sent: dict[str, Any], fields: list[str]
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        by(Details, tasks.current(TASK), SHOWN, sent)
    assert [each.field for each in refused.value.errors] == fields


@pytest.mark.parametrize("sent", [{"id": "7"}, SHOWN | {"title": None}])
def test_a_replacement_without_what_has_to_be_there_is_refused(sent: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as refused:
        replaced(Details, tasks.current(TASK), SHOWN, sent)
    assert [each.field for each in refused.value.errors] == ["title"]


def test_a_patch_may_name_a_part_of_what_cannot_be_set() -> None:
    """What it leaves as it is, by RFC 7396; ``null`` removes what is not there."""
    shown = SHOWN | {"by": {"name": "Jane", "team": None}, "doneAt": None}
    same = {"by": {"name": "Jane"}, "doneAt": None, "note": "x"}
    for sent in (same, shown | {"note": "x"}):
        assert patched(Details, tasks.current(TASK), shown, sent).note == "x"
    for other in ({"by": {"name": "Joe"}}, {"by": None}, {"doneAt": "2026-03-01"}, {"by": {"name": None}}):
        with pytest.raises(InvalidRequest) as refused:
            patched(Details, tasks.current(TASK), shown, other)
        assert [each.code for each in refused.value.errors] == ["read_only"]


def test_a_patch_is_applied_to_a_state_that_breaks_todays_rules() -> None:
    state = TASK.state.model_copy(update={"title": "x" * 101})
    assert tasks.current(Task.load(state)).title == "x" * 101


def test_a_call_that_is_not_declared_is_not_there() -> None:
    only_read: Resource[Task, Details] = Resource("tasks", Task)
    assert [(call.name, call.method, call.route) for call in calls(service, [only_read])] == [
        ("list_tasks", "GET", "tasks"),
        ("get_office_task", "GET", "tasks/{id}"),
    ]


def test_an_integer_that_no_body_may_hold_stays_as_it_was_stored() -> None:
    """It was not sent: a patch of another part left it."""
    shown = SHOWN | {"by": {"name": "Jane", "number": 2**60 + 1}}
    same = {"by": {"name": "Jane"}, "note": "x"}
    assert patched(Details, tasks.current(TASK), shown, same).note == "x"
    with pytest.raises(InvalidRequest) as refused:
        patched(Details, tasks.current(TASK), shown, {"by": {"name": "Joe"}})
    assert [each.field for each in refused.value.errors] == ["by"]


@pytest.mark.parametrize("by", [replaced, patched])
def test_a_stored_part_that_breaks_todays_rules_may_be_sent_back(by: Any) -> None:
    stored = {"room": "x" * 101, "floor": None}
    place = Place.model_validate(stored, context=STORED)
    current = tasks.current(Task.load(TASK.state.model_copy(update={"place": place})))
    made = by(Details, current, SHOWN, {"title": "new", "place": stored})
    assert (made.title, made.place) == ("new", place)
    with pytest.raises(InvalidRequest) as refused:
        by(Details, current, SHOWN, {"title": "new", "place": {"room": "y" * 101, "floor": None}})
    assert [each.field for each in refused.value.errors] == ["place.room"]


class Letter(WireModel):
    body: str


@pytest.mark.parametrize("by", [replaced, patched])
def test_an_unknown_field_with_an_empty_name_is_refused(by: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        by(Letter, Letter(body="x"), {"body": "x"}, {"body": "x", "": 1})
    assert [(each.field, each.code) for each in refused.value.errors] == [("body", "unknown")]


def test_an_errors_status_precedes_its_bases_in_any_declared_order() -> None:
    assert [kind for kind, _, _ in status_of({Exception: 422, ValueError: 409, UnicodeError: 400})] == [
        UnicodeError, ValueError, Exception
    ]  # fmt: skip


def signed_in(who: str, **headers: str) -> Headers:
    written = {"x-ms-client-principal-id": who, "x-ms-client-principal-idp": "aad"}
    return Headers(written, {"Content-Type": "application/json"}, headers)


async def created(by: Headers, *, caller_of: CallerOf | None = None) -> Answer:
    [create, *_] = calls(service, [tasks], caller_of=caller_of)
    body = b'{"title": "Water the plants", "place": {"room": "Hall"}}'
    return await create.handler(Request("POST", "http://localhost/api/tasks", by, {}, body))


async def test_a_vouched_principal_is_the_events_cause_and_owns_its_keys() -> None:
    async with in_memory(service, environment={"WEBSITE_AUTH_ENABLED": "True"}) as memory:
        first = await created(signed_in("ann", **{"Idempotency-Key": "1"}))
        others = await created(signed_in("bob", **{"Idempotency-Key": "1"}))
        again = await created(signed_in("ann", **{"Idempotency-Key": "1"}))
        nobodys = await created(Headers({"Content-Type": "application/json", "x-functions-key": "k"}))
    assert [each.status for each in (first, others, again, nobodys)] == [201] * 4
    assert again.headers["Location"] == first.headers["Location"] != others.headers["Location"]
    by = [event.data.get("causedBy") for event in memory.events]
    assert by == [
        hashlib.sha256(b"principal aad ann").hexdigest(),
        hashlib.sha256(b"principal aad bob").hexdigest(),
        None,
    ]


async def test_a_change_has_it_too() -> None:
    async with in_memory(service, environment={"WEBSITE_AUTH_ENABLED": "True"}) as memory:
        made = await created(signed_in("ann"))
        finish = next(each for each in calls(service, [tasks]) if each.route.endswith("/finish"))
        place = made.headers["Location"]
        done = await finish.handler(
            Request("POST", f"{place}/finish", signed_in("bob"), {"id": place.rpartition("/")[2]})
        )
    assert done.status == 200
    assert [event.data["causedBy"] for event in memory.events] == [
        hashlib.sha256(b"principal aad ann").hexdigest(),
        hashlib.sha256(b"principal aad bob").hexdigest(),
    ]


async def test_a_forged_principal_changes_nothing_without_platform_sign_in() -> None:
    async with in_memory(service) as memory:
        first = await created(signed_in("ann", **{"Idempotency-Key": "1"}))
        second = await created(signed_in("bob", **{"Idempotency-Key": "1"}))
        named = await created(signed_in("bob"), caller_of=lambda _: "cyd")
    assert second.headers["Location"] == first.headers["Location"], "both are the same caller: nobody"
    assert named.status == 201
    assert [event.data.get("causedBy") for event in memory.events] == [
        None,
        hashlib.sha256(b"program cyd").hexdigest(),
    ]
