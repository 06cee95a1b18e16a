"""Each condition of RFC 9110, section 13, and the version in a body, decides as it says, over tasks in memory."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from email.utils import format_datetime
from typing import Any, Literal, Self
from uuid import UUID, uuid4

import httpx
import pytest
from pydantic import BaseModel, Field

from cosmos_outbox import Aggregate, AggregateState, DomainEvent, Names, Service, Timestamp, WireModel
from cosmos_outbox.http import Action, Resource, asgi_app
from cosmos_outbox.http.calls import calls
from cosmos_outbox.http.errors import InvalidRequest
from cosmos_outbox.http.listing import written_in
from cosmos_outbox.kernel import clock
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.testing import in_memory
from tests.support.contacts import NOON
from tests.support.tasks import Details, Task, TaskState, service, tasks

TASK = {"title": "Water the plants", "note": "twice"}
"""In the order in which a client would send it back."""


class DatedState(TaskState):
    modified_at: Timestamp | None = None


class DatedTask(Task):
    state_type = DatedState

    @classmethod
    def create(cls, details: Details, *, at: datetime, id: UUID | None = None) -> Self:  # noqa: A002 - its id
        return cls(DatedState(**dict(details), id=id or uuid4(), created_at=at), is_new=True)

    def remind(self, *, at: datetime) -> None:
        self._raise(lambda sequence: TaskReminded(sequence=sequence, created_at=at), owner="somebody")


class TaskReminded(DomainEvent):
    """It tells what no changed property does."""

    action: Literal["TaskReminded"] = "TaskReminded"


dated_service = Service("tasks", [DatedTask], Names(database="tasks", container="tasks", topic="task-events"))
dated = replace(
    tasks, kind=DatedTask, create=DatedTask.create,
    actions=[*tasks.actions, Action("remind", DatedTask.remind)],
)  # fmt: skip


@contextmanager
def at_second(seconds: float) -> Iterator[None]:
    """By the clock of the service."""
    with clock.using(replace(clock.SYSTEM, now=lambda: NOON + timedelta(seconds=seconds))):
        yield


@pytest.fixture
async def api() -> AsyncIterator[httpx.AsyncClient]:
    async with in_memory(dated_service):
        transport = httpx.ASGITransport(asgi_app(dated_service, [dated]))
        async with httpx.AsyncClient(transport=transport, base_url="http://tasks") as client:
            yield client


@pytest.fixture
async def undated() -> AsyncIterator[httpx.AsyncClient]:
    """Tasks that tell when they were made, and not when they were changed."""
    async with in_memory(service):
        transport = httpx.ASGITransport(asgi_app(service, [tasks]))
        async with httpx.AsyncClient(transport=transport, base_url="http://tasks") as client:
            yield client


async def created(api: httpx.AsyncClient) -> tuple[str, dict[str, Any], httpx.Headers]:
    answer = await api.post("/tasks", json=TASK)
    assert answer.status_code == 201
    return f"/tasks/{answer.json()['id']}", answer.json(), answer.headers


def date(seconds: float) -> str:
    return format_datetime(utc_now() + timedelta(seconds=seconds), usegmt=True)


async def test_each_answer_with_a_task_has_its_version_and_when_it_was_changed(
    api: httpx.AsyncClient,
) -> None:
    where, body, headers = await created(api)
    patched = await api.patch(where, json={"note": None})
    read = await api.get(where)
    [item] = (await api.get("/tasks")).json()["items"]
    assert body["etag"] == headers["ETag"]
    assert patched.json()["etag"] == patched.headers["ETag"] == read.headers["ETag"] != headers["ETag"]
    assert read.json() == item == patched.json()
    assert not any("Last-Modified" in each for each in (headers, patched.headers, read.headers))
    with at_second(60 + (utc_now() - NOON).total_seconds()):
        dated_answer = await api.get(where)
    assert dated_answer.headers["Last-Modified"] == format_datetime(
        datetime.fromisoformat(read.json()["modifiedAt"]), usegmt=True
    )


async def test_what_was_read_is_sent_back_with_its_version_until_another_was_faster(
    api: httpx.AsyncClient,
) -> None:
    where, first, _ = await created(api)
    second = await api.put(where, json=first | {"title": "Feed the cat"})
    assert (second.status_code, second.json()["title"]) == (200, "Feed the cat")
    late = await api.put(where, json=first | {"title": "Ring the bell"})
    assert late.status_code == 412, "the old version decides before the old sequence does (400)"
    assert (await api.patch(where, json={"note": "x", "etag": first["etag"]})).status_code == 412
    patched = await api.patch(where, json={"note": "x", "etag": second.json()["etag"]})
    assert (patched.status_code, patched.json()["note"]) == (200, "x")
    assert (await api.get(where)).json()["title"] == "Feed the cat"


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
async def test_who_has_read_again_and_repeats_a_change_with_its_key_gets_the_first_answer(
    api: httpx.AsyncClient, method: str
) -> None:
    """The version in a body is a condition as If-Match is, so the request is the same with another one."""
    where, first, _ = await created(api)
    key, change = {"Idempotency-Key": "k"}, TASK | {"title": "Feed the cat"}
    made = await api.request(method, where, json=change | {"etag": first["etag"]}, headers=key)
    assert made.status_code == 200
    for etag in ({"etag": made.json()["etag"]}, {"etag": first["etag"]}, {}):
        again = await api.request(method, where, json=change | etag, headers=key)
        assert (again.status_code, again.json()) == (200, made.json())
        assert again.headers["Idempotency-Replayed"] == "true"
    another = await api.request(method, where, json=change | {"note": "once"}, headers=key)
    assert another.status_code == 422


async def test_a_patch_of_all_that_was_read_changes_what_was_edited(api: httpx.AsyncClient) -> None:
    where, first, _ = await created(api)
    whole = await api.patch(where, json=first | {"title": "Feed the cat"})
    assert (whole.status_code, whole.json()["title"]) == (200, "Feed the cat")
    late = await api.patch(where, json={**first, "title": "Ring the bell", "etag": whole.json()["etag"]})
    assert (late.status_code, [each["field"] for each in late.json()["errors"]]) == (
        400,
        ["modifiedAt", "sequence"],
    )
    assert {each["code"] for each in late.json()["errors"]} == {"read_only"}


async def test_a_version_in_the_body_and_one_in_the_header_must_both_hold(api: httpx.AsyncClient) -> None:
    where, first, _ = await created(api)
    newest = (await api.patch(where, json={"note": "x"})).json()["etag"]
    for header, etag, status in (
        (newest, first["etag"], 412),
        (first["etag"], newest, 412),
        (first["etag"], first["etag"], 412),
        (f"W/{newest}", newest, 412),
        (newest, f"W/{newest}", 412),
        (f'"other", {newest}', newest, 200),
        ("*", newest, 200),
        (newest, newest, 200),
    ):
        answer = await api.patch(where, json={"note": "x", "etag": etag}, headers={"If-Match": header})
        assert answer.status_code == status, (header, etag)


@pytest.mark.parametrize("etag", [None, 1, "", "abc", '"a", "b"', ["x"]])
async def test_a_version_that_is_none_is_refused_by_name(api: httpx.AsyncClient, etag: Any) -> None:
    where, first, _ = await created(api)
    for answer in (
        await api.patch(where, json={"note": "x", "etag": etag}),
        await api.put(where, json=first | {"etag": etag}),
    ):
        assert (answer.status_code, [each["field"] for each in answer.json()["errors"]]) == (400, ["etag"])
    assert (await api.get(where)).json() == first


async def test_a_missing_task_is_not_blamed_on_a_condition(api: httpx.AsyncClient) -> None:
    """RFC 9110, 13.2.1; and a PUT creates nothing, whatever its conditions are."""
    missing = f"/tasks/{uuid4()}"
    for headers in ({"If-Match": '"1"'}, {"If-None-Match": "*"}, {"If-Unmodified-Since": date(0)}):
        assert (await api.put(missing, json=TASK, headers=headers)).status_code == 404
        assert (await api.patch(missing, json={"note": "x"}, headers=headers)).status_code == 404
        assert (await api.delete(missing, headers=headers)).status_code == 404


async def test_a_change_asks_which_version_it_does_not_meet_and_since_when(api: httpx.AsyncClient) -> None:
    where, first, _ = await created(api)
    at, before, after, forms = (
        first["etag"],
        date(-60),
        date(60),
        ("Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"),
    )
    for headers, status in (
        ({"If-None-Match": "*"}, 412),
        ({"If-None-Match": at}, 412),
        ({"If-None-Match": f'"x", W/{at}'}, 412),
        ({"If-None-Match": '"x"'}, 200),
        ({"If-None-Match": "x"}, 400),
        ({"If-Unmodified-Since": before}, 412),
        *[({"If-Unmodified-Since": form}, 412) for form in forms],
        ({"If-Unmodified-Since": after}, 200),
        ({"If-Unmodified-Since": "yesterday"}, 400),
        ({"If-Unmodified-Since": "Sun, 99 Nov 1994 08:49:37 GMT"}, 400),
        ({"If-Unmodified-Since": "Mon, 01 Jan 2027 00:00 +99999999999999 GMT"}, 400),
        ({"If-Unmodified-Since": before, "If-Match": at}, 200),
        ({"If-Unmodified-Since": after, "If-Match": '"x"'}, 412),
        ({"If-Unmodified-Since": after, "If-None-Match": at}, 412),
        ({"If-Match": at, "If-None-Match": at}, 412),
        ({"If-Modified-Since": after}, 200),
    ):  # fmt: skip
        for key in ({}, {"Idempotency-Key": str(uuid4())}):
            answer = await api.patch(where, json={"note": "twice"}, headers=headers | key)
            assert answer.status_code == status, headers
    assert (await api.get(where)).json() == first
    assert (await api.delete(where, headers={"If-None-Match": "*"})).status_code == 412
    assert (await api.post(f"{where}/finish", headers={"If-Unmodified-Since": before})).status_code == 412
    assert (
        await api.patch(where, json={"etag": at}, headers={"If-Unmodified-Since": before})
    ).status_code == 200


@pytest.mark.parametrize("how", ["a property", "an event of its own"])
async def test_the_date_of_an_answer_allows_the_change_until_it_was_changed(
    api: httpx.AsyncClient, how: str
) -> None:
    """The state only declares the date: each change sets it, whatever tells of the change."""
    with at_second(0.1):
        where, _, _ = await created(api)
    with at_second(4):
        since = {"If-Unmodified-Since": (await api.get(where)).headers["Last-Modified"]}
        if how == "a property":
            changed = await api.patch(where, json={"note": "once"}, headers=since)
        else:
            changed = await api.post(f"{where}/remind", headers=since)
        assert changed.status_code == 200
    with at_second(9):
        assert (await api.patch(where, json={"note": "late"}, headers=since)).status_code == 412


@pytest.mark.parametrize(
    ("read_at", "changed_at"), [(0.2, 0.9), (2.5, 0.6)], ids=["in the same second", "by a slow clock"]
)
async def test_nobody_gets_a_date_that_the_next_version_has_too(
    api: httpx.AsyncClient, read_at: float, changed_at: float
) -> None:
    """He would overwrite the other's change, or take the old version for the newest for ever."""
    with at_second(0.1):
        where, _, _ = await created(api)
    with at_second(read_at):
        date_read = (await api.get(where)).headers.get("Last-Modified")
    with at_second(changed_at):
        assert (await api.patch(where, json={"note": "the other's"})).status_code == 200
    assert date_read is None


@pytest.mark.parametrize(("read_at", "is_told"), [(2.9, False), (3.0, True)])
async def test_a_date_is_left_out_for_three_seconds(
    api: httpx.AsyncClient, read_at: float, is_told: bool
) -> None:
    with at_second(0):
        where, _, _ = await created(api)
    with at_second(read_at):
        assert ("Last-Modified" in (await api.get(where)).headers) == is_told


async def test_what_tells_only_when_it_was_made_has_no_date(undated: httpx.AsyncClient) -> None:
    with at_second(0):
        where, _, headers = await created(undated)
    with at_second(60):
        read = await undated.get(where, headers={"If-Modified-Since": date(3600)})
        since = {"If-Unmodified-Since": date(3600)}
        refused = await undated.patch(where, json={"note": "mine"}, headers=since)
    assert "Last-Modified" not in {**headers, **read.headers}
    assert (read.status_code, refused.status_code) == (200, 400)
    assert [each["field"] for each in refused.json()["errors"]] == ["If-Unmodified-Since"]


async def test_a_task_is_not_sent_again_to_who_has_it(api: httpx.AsyncClient) -> None:
    with at_second(0):
        where, first, _ = await created(api)
    headers, at = (await api.get(where)).headers, first["etag"]
    with at_second(90):
        for asked, status in (
            ({"If-None-Match": f'"x", W/{at}'}, 304),
            ({"If-None-Match": "*"}, 304),
            ({"If-None-Match": '"x"'}, 200),
            ({"If-Modified-Since": headers["Last-Modified"]}, 304),
            ({"If-Modified-Since": date(60)}, 304),
            ({"If-Modified-Since": date(-120)}, 200),
            ({"If-Modified-Since": "yesterday"}, 200),
            ({"If-Modified-Since": "Fri, 01 Mar 2199 12:00:00 +0200"}, 200),  # no date of HTTP
            ({"If-Modified-Since": "Mon, 01 Jan 2027 00:00 +99999999999999 GMT"}, 200),
            ({"If-Modified-Since": date(60), "If-None-Match": '"x"'}, 200),
            ({"If-Modified-Since": date(-120), "If-None-Match": at}, 304),
        ):
            answer = await api.get(where, headers=asked)
            assert answer.status_code == status, asked
            assert (answer.headers["ETag"], answer.headers["Last-Modified"]) == (at, headers["Last-Modified"])


class _Named(WireModel):
    etag: str


class _Called(WireModel):
    seal: str = Field(alias="etag")


class _Plain(BaseModel):
    etag: str


@pytest.mark.parametrize("new", [_Named, _Called, _Plain])
def test_a_field_that_bodies_call_the_version_is_refused_when_it_is_declared(new: Any) -> None:
    with pytest.raises(TypeError, match="etag is what bodies call the version"):
        Resource("tasks", Task, new=new, details=lambda task: new(etag=""))


class _Stone(Aggregate[AggregateState]):
    aggregate_type, state_type = "stone", AggregateState
    aggregate_id = "1"

    def _created(self, state: AggregateState, sequence: int) -> DomainEvent:
        raise AssertionError("none is made")

    def delete(self, *, at: datetime) -> None:
        raise AssertionError("none is deleted")


def test_a_condition_by_date_is_not_taken_where_nothing_has_a_date() -> None:
    stones: Resource[Any, Any] = Resource("stones", _Stone, delete=_Stone.delete)
    [delete] = [call for call in calls(service, [stones]) if call.method == "DELETE"]
    assert "If-Unmodified-Since" not in delete.honours


async def test_each_answer_to_a_write_says_what_it_wrote(api: httpx.AsyncClient) -> None:
    where, first, headers = await created(api)
    key = {"Idempotency-Key": str(uuid4())}
    patched, again = [await api.patch(where, json={"note": "x"}, headers=key) for _ in range(2)]
    deleted = await api.delete(where)
    told = [headers["Written"], *(each.headers["Written"] for each in (patched, again, deleted))]
    assert told == [f"{first['id']}:{sequence}" for sequence in (1, 2, 2, 3)]
    assert written_in(told[0]) == (first["id"], 1)
    for text in ("", "7", "7:", ":7", "7:x", "a/b:7", "7:" + "1" * 16):
        with pytest.raises(InvalidRequest):
            written_in(text)
