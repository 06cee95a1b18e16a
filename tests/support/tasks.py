"""A service whose calls are declared: tasks, with every call that a resource can have."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, ClassVar, Self
from uuid import UUID, uuid4

from cosmos_outbox import Aggregate, AggregateState, Names, Service, Timestamp, WireModel, input_rule
from cosmos_outbox.http import Action, Resource


class TaskError(Exception):
    """A task refuses a change."""


class NobodyGiven(TaskError):
    """A task has somebody."""


class TaskDone(TaskError):
    """A task that is done changes no more."""


def _short(text: str) -> str:
    if not 1 <= len(text) <= 100:
        raise ValueError("must have 1 to 100 characters")
    return text


class Place(WireModel):
    room: Annotated[str, input_rule(_short)]
    floor: int | None = None


class Details(WireModel):
    title: Annotated[str, input_rule(_short)]
    note: str | None = None
    place: Place | None = None


class Owner(WireModel):
    name: Annotated[str, input_rule(_short)]


class TaskState(Details, AggregateState):
    id: UUID
    created_at: Timestamp
    owner: str | None = None
    done_at: Timestamp | None = None
    deleted: bool = False


class Task(Aggregate[TaskState]):
    aggregate_type: ClassVar[str] = "officeTask"
    state_type: ClassVar[type[AggregateState]] = TaskState
    created_event, created_payload = "TaskCreated", Details
    changed_events: ClassVar[Mapping[str, str]] = {
        "title": "TaskTitleChanged", "note": "TaskNoteChanged", "place": "TaskMoved", "owner": "TaskGiven",
        "done_at": "TaskDoneEvent", "deleted": "TaskDeleted",
    }  # fmt: skip

    @classmethod
    def create(cls, details: Details, *, at: datetime, id: UUID | None = None) -> Self:  # noqa: A002 - its id
        return cls(TaskState(**dict(details), id=id or uuid4(), created_at=at), is_new=True)

    @property
    def aggregate_id(self) -> str:
        return str(self._state.id)

    @property
    def deleted(self) -> bool:
        return self._state.deleted

    def revise(self, details: Details, *, at: datetime) -> None:
        self._must_be_open()
        for name, value in details:
            self._set(name, value, at)

    def give(self, owner: Owner, *, at: datetime) -> None:
        if owner.name == "nobody":
            raise NobodyGiven("a task has somebody: give it to a person")
        self._set("owner", owner.name, at)

    def finish(self, *, at: datetime) -> None:
        self._must_be_open()
        self._set("done_at", at, at)

    def delete(self, *, at: datetime) -> None:
        self._set("deleted", True, at)

    def _must_be_open(self) -> None:
        if self._state.done_at is not None:
            raise TaskDone("the task is done and takes no change: make another one")


service = Service("tasks", [Task], Names(database="tasks", container="tasks", topic="task-events"))
tasks = Resource(
    "tasks",
    Task,
    new=Details,
    create=Task.create,
    change=Task.revise,
    delete=Task.delete,
    actions=[Action("give", Task.give, body=Owner), Action("finish", Task.finish)],
    errors={TaskError: 422, TaskDone: 409},
)
