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

from cosmos_outbox import DomainEvent, Names, Service, Timestamp
from cosmos_outbox.http import Action, asgi_app
from cosmos_outbox.kernel import clock
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.testing import in_memory
from tests.support.contacts import NOON
from tests.support.tasks import Details, Task, TaskState, tasks

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
    """It holds what no changed property does."""

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


async def created(api: httpx.AsyncClient) -> tuple[str, dict[str, Any], httpx.Headers]:
    answer = await api.post("/tasks", json=TASK)
    assert answer.status_code == 201
    return f"/tasks/{answer.json()['id']}", answer.json(), answer.headers


def date(seconds: float) -> str:
    return format_datetime(utc_now() + timedelta(seconds=seconds), usegmt=True)


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
        ({"If-Unmodified-Since": f"{after},{before}"}, 400),  # of two headers
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
