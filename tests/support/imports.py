"""A file, its import task and the message that starts the task: aggregates that share one partition."""

from datetime import datetime
from typing import ClassVar, Literal, Self
from uuid import UUID, uuid4

from cosmos_outbox.outbox.aggregate import Aggregate, AggregateState
from cosmos_outbox.outbox.event import DomainEvent


class FileState(AggregateState):
    id: UUID
    name: str
    uploaded_at: datetime


class FileUploadedEvent(DomainEvent):
    action: Literal["FileUploadedEvent"] = "FileUploadedEvent"
    file_id: UUID
    name: str


class ImportFile(Aggregate[FileState]):
    aggregate_type: ClassVar[str] = "file"
    state_type: ClassVar[type[AggregateState]] = FileState

    @classmethod
    def upload(cls, name: str, *, at: datetime) -> Self:
        return cls(FileState(id=uuid4(), name=name, uploaded_at=at), is_new=True)

    @property
    def aggregate_id(self) -> str:
        return str(self._state.id)

    def _created(self, state: FileState, sequence: int) -> DomainEvent:
        return FileUploadedEvent(
            file_id=state.id, name=state.name, sequence=sequence, created_at=state.uploaded_at
        )


class TaskState(AggregateState):
    id: UUID
    file_id: UUID
    created_at: datetime
    attempts: int = 0


class TaskCreatedEvent(DomainEvent):
    action: Literal["TaskCreatedEvent"] = "TaskCreatedEvent"
    task_id: UUID


class StartImport(DomainEvent):
    """A message that no difference of properties explains."""

    action: Literal["StartImport"] = "StartImport"
    task_id: UUID
    attempt: int


class ImportTask(Aggregate[TaskState]):
    aggregate_type: ClassVar[str] = "task"
    state_type: ClassVar[type[AggregateState]] = TaskState

    @classmethod
    def of(cls, file: ImportFile, *, at: datetime) -> Self:
        return cls(TaskState(id=uuid4(), file_id=file.state.id, created_at=at), is_new=True)

    @property
    def aggregate_id(self) -> str:
        return str(self._state.id)

    @property
    def partition_key(self) -> str:
        return str(self._state.file_id)

    def start(self, *, at: datetime) -> None:
        attempt = self._state.attempts + 1
        self._raise(
            lambda sequence: StartImport(
                task_id=self._state.id, attempt=attempt, sequence=sequence, created_at=at
            ),
            attempts=attempt,
        )

    def _created(self, state: TaskState, sequence: int) -> DomainEvent:
        return TaskCreatedEvent(task_id=state.id, sequence=sequence, created_at=state.created_at)
