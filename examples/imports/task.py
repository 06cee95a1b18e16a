"""A task is run by one worker at a time, and each attempt ends once: by its worker, or by its time.

``PENDING`` -> ``RUNNING`` -> ``SUCCEEDED``, ``FAILED``, or ``PENDING`` again. A worker names the attempt that it ends:
one that was taken for dead, and is not, ends nothing. So no lock is needed, and a message that comes twice starts
nothing. A message that never comes, since it lies in a poison queue, is made up for by the task's own time.
"""

import os
from datetime import datetime, timedelta
from typing import ClassVar, Literal, Self
from uuid import UUID, uuid5

from cosmos_outbox import Aggregate, AggregateState, DomainEvent, Timestamp, WireModel

MOST_ATTEMPTS = 5
RUN_FOR = timedelta(seconds=float(os.environ.get("IMPORT_RUN_SECONDS", "600")))
"""A worker that has not ended its attempt by then is dead, or will be refused."""
FIRST_PAUSE = timedelta(seconds=float(os.environ.get("IMPORT_PAUSE_SECONDS", "10")))
"""Before the second attempt; it doubles with each."""
START_WITHIN = timedelta(seconds=float(os.environ.get("IMPORT_START_SECONDS", "3600")))
"""A task that nobody has begun by then is published again, as often as need be."""
LONGEST_ERROR = 500

Status = Literal["PENDING", "RUNNING", "SUCCEEDED", "FAILED"]


class NotTaken(Exception):
    """Another worker has the task, or nothing is to be done."""


class AttemptOver(Exception):
    """The attempt was ended before: by its time, while its worker went on."""


class NewTask(WireModel):
    """Which file is to be read."""

    file_id: UUID


class TaskState(NewTask, AggregateState):
    """A task as it is stored."""

    id: UUID
    created_at: Timestamp
    status: Status = "PENDING"
    attempts: int = 0
    """Those that were begun."""
    started_at: Timestamp | None = None
    """When the newest was."""
    finished_at: Timestamp | None = None
    due_at: Timestamp | None = None
    """When the attempt is over, the next one may begin, or it is published again that it may."""
    paused: bool = False
    """Nobody may begin yet."""
    last_error: str | None = None
    rows: int | None = None


class TaskEvent(DomainEvent):
    """Of a task; ``attempt``: the newest that was begun."""

    task_id: UUID
    file_id: UUID
    attempt: int


class TaskStarted(TaskEvent):
    """A worker has it."""

    action: Literal["TaskStarted"] = "TaskStarted"


class TaskPostponed(TaskEvent):
    """An attempt did not succeed, and there will be another one."""

    action: Literal["TaskPostponed"] = "TaskPostponed"
    error: str


class TaskReady(TaskEvent):
    """Its pause is over, or nobody has begun it: the receiver of this message may run it."""

    action: Literal["TaskReady"] = "TaskReady"


class TaskSucceeded(TaskEvent):
    """The file was read."""

    action: Literal["TaskSucceeded"] = "TaskSucceeded"
    rows: int


class TaskFailed(TaskEvent):
    """There will be no other attempt."""

    action: Literal["TaskFailed"] = "TaskFailed"
    error: str


TO_RUN = ("TaskCreated", "TaskReady")
"""The events that a worker waits for."""


class ImportTask(Aggregate[TaskState]):
    """The task of reading one file; the file's id gives the task's."""

    aggregate_type: ClassVar[str] = "task"
    state_type: ClassVar[type[AggregateState]] = TaskState
    created_event, created_payload = "TaskCreated", NewTask

    @classmethod
    def create(cls, file_id: UUID, *, at: datetime) -> Self:
        """A task that nobody has begun."""
        due_at = at + START_WITHIN
        return cls(TaskState(id=task_of(file_id), file_id=file_id, created_at=at, due_at=due_at), is_new=True)

    @property
    def aggregate_id(self) -> str:
        """The task's id."""
        return str(self.state.id)

    @property
    def partition_key(self) -> str:
        """The file's."""
        return str(self.state.file_id)

    @property
    def due(self) -> datetime | None:
        """Until it is done."""
        return self.state.due_at

    def on_due(self, *, at: datetime) -> None:
        """Its worker has died, its pause is over, or nobody has begun it."""
        if self.state.status == "RUNNING":
            self.fail(self.state.attempts, f"not done within {RUN_FOR.total_seconds():.0f} s", at=at)
        else:
            self._emit(TaskReady, at, due_at=at + START_WITHIN, paused=False)

    def start(self, *, at: datetime, run_for: timedelta = RUN_FOR) -> None:
        """Begin an attempt, whose number is then ``state.attempts``. Raises NotTaken."""
        if self.state.status != "PENDING" or self.state.paused:
            raise NotTaken(f"the task is {self.state.status}")
        attempts = self.state.attempts + 1
        self._emit(
            TaskStarted, at, attempt=attempts, attempts=attempts, status="RUNNING", started_at=at, due_at=at + run_for
        )  # fmt: skip

    def succeed(self, attempt: int, rows: int, *, at: datetime) -> None:
        """The file was read. Raises AttemptOver."""
        self._check(attempt)
        self._emit(
            TaskSucceeded, at, facts={"rows": rows},
            status="SUCCEEDED", rows=rows, finished_at=at, due_at=None, last_error=None,
        )  # fmt: skip

    def fail(self, attempt: int, error: str, *, at: datetime, for_ever: bool = False) -> None:
        """It was not read, this time or ``for_ever``. Raises AttemptOver."""
        self._check(attempt)
        error = error[:LONGEST_ERROR]
        if for_ever or attempt >= MOST_ATTEMPTS:
            self._emit(
                TaskFailed, at, facts={"error": error},
                status="FAILED", last_error=error, finished_at=at, due_at=None,
            )  # fmt: skip
        else:
            again = at + FIRST_PAUSE * 2 ** (attempt - 1)
            self._emit(
                TaskPostponed, at, facts={"error": error},
                status="PENDING", last_error=error, due_at=again, paused=True,
            )  # fmt: skip

    def _check(self, attempt: int) -> None:
        if self.state.status != "RUNNING" or self.state.attempts != attempt:
            raise AttemptOver(f"attempt {attempt} is over: the task is {self.state.status}")

    def _emit(
        self,
        event: type[TaskEvent],
        at: datetime,
        *,
        attempt: int | None = None,
        facts: dict[str, object] | None = None,
        **update: object,
    ) -> None:
        known = {"task_id": self.state.id, "file_id": self.state.file_id, "created_at": at, **(facts or {})}
        known["attempt"] = self.state.attempts if attempt is None else attempt
        self._raise(lambda sequence: event.model_validate({**known, "sequence": sequence}), **update)


def task_of(file_id: UUID) -> UUID:
    """The id of a file's task."""
    return uuid5(file_id, "import")
