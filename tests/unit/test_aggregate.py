"""A property may change with an event of its own, and be set as well: subscribers end with the state that is stored."""

from datetime import UTC, datetime, timedelta
from typing import ClassVar

import pytest

from cosmos_outbox.outbox.aggregate import Aggregate, AggregateState
from cosmos_outbox.outbox.event import DomainEvent

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class TaskState(AggregateState):
    status: str = "open"
    owner: str = "nobody"


class TaskEvent(DomainEvent):
    task_id: str = "1"
    timed_task_id: str = "1"
    status: str | None = None
    owner: str | None = None


class Task(Aggregate[TaskState]):
    aggregate_type: ClassVar[str] = "task"
    state_type: ClassVar[type[AggregateState]] = TaskState

    @property
    def aggregate_id(self) -> str:
        return "1"

    def set(self, **values: str) -> None:
        for name, value in values.items():
            self._set(name, value, NOON)

    def hand_over(self, **update: str) -> None:
        """An event that no changed property explains, and what changes with it."""
        self._raise(
            lambda sequence: TaskEvent(action="HandedOver", sequence=sequence, created_at=NOON, **update),
            **update,
        )

    def _created(self, state: TaskState, sequence: int) -> DomainEvent:
        return TaskEvent(
            action="Created", sequence=sequence, created_at=NOON, status=state.status, owner=state.owner
        )

    def _updated(self, name: str, state: TaskState, sequence: int, at: datetime) -> DomainEvent:
        return TaskEvent(
            action=f"{name} updated", sequence=sequence, created_at=at, **{name: getattr(state, name)}
        )


def reported(task: Task) -> tuple[list[str], dict[str, str]]:
    """The events, and what a subscriber knows after them who knew the task as it was stored."""
    changes = task.changes()
    assert changes is not None
    known = {"status": "open", "owner": "nobody"}
    for event in changes.events:
        known |= event.model_dump(include={"status", "owner"}, exclude_none=True)
    assert known == {"status": changes.state.status, "owner": changes.state.owner}, "subscribers are right"
    return [event.action for event in changes.events], known


@pytest.fixture
def task() -> Task:
    return Task.load(TaskState(last_sequence=1))


def test_what_an_event_changed_and_a_setter_sets_back_is_published(task: Task) -> None:
    task.hand_over(owner="Jane")
    task.set(owner="nobody")
    assert reported(task) == (["HandedOver", "owner updated"], {"status": "open", "owner": "nobody"})


def test_a_value_set_after_an_event_of_it_is_published_by_a_later_one(task: Task) -> None:
    task.set(owner="John", status="busy")
    task.hand_over(owner="Jane")
    task.set(owner="Jim")
    assert reported(task)[1] == {"status": "busy", "owner": "Jim"}


def test_a_value_set_before_an_event_that_changes_it_is_published_by_it(task: Task) -> None:
    task.set(owner="John")
    task.hand_over(owner="Jane")
    assert reported(task)[1] == {"status": "open", "owner": "Jane"}


def test_the_time_of_the_last_change_is_that_of_the_published_state() -> None:
    class TimedState(TaskState):
        modified_at: datetime

    class Timed(Task):
        aggregate_type: ClassVar[str] = "timed-task"
        state_type: ClassVar[type[AggregateState]] = TimedState

    state = TimedState(modified_at=NOON - timedelta(days=1))
    stored, new = Timed.load(state), Timed(state, is_new=True)
    for task in (stored, new):
        task._set("owner", "Jane", NOON + timedelta(hours=1))
        task._set("owner", "nobody", NOON + timedelta(hours=2))
        task.hand_over(status="busy")
    times = [
        changes.state.model_dump()["modified_at"] for task in (stored, new) if (changes := task.changes())
    ]
    assert times == [NOON, NOON - timedelta(days=1)], "and a new one is as it was made"
