"""The record of an uploaded file: its bytes lie in Blob Storage, under a name with their digest."""

from datetime import datetime
from typing import ClassVar, Literal, Self
from uuid import UUID

from cosmos_outbox import Aggregate, AggregateState, DomainEvent, Timestamp, WireModel


class Upload(WireModel):
    """What is known of a file. ``digest``: SHA-256 of its bytes, which are ``size`` many."""

    name: str
    size: int
    digest: str


class FileState(Upload, AggregateState):
    """A file as it is stored."""

    id: UUID
    created_at: Timestamp
    rows: int | None = None
    """None: it was not read to its end."""


class FileImported(DomainEvent):
    """Its rows were read."""

    action: Literal["FileImported"] = "FileImported"
    file_id: UUID
    rows: int


class SourceFile(Aggregate[FileState]):
    """An uploaded file; its task is in the same partition, so one transaction can change both."""

    aggregate_type: ClassVar[str] = "file"
    state_type: ClassVar[type[AggregateState]] = FileState
    created_event, created_payload = "FileUploaded", Upload

    @classmethod
    def upload(cls, upload: Upload, *, id: UUID, at: datetime) -> Self:  # noqa: A002 - its id
        """A new file."""
        return cls(FileState(**dict(upload), id=id, created_at=at), is_new=True)

    @property
    def aggregate_id(self) -> str:
        """The file's id."""
        return str(self.state.id)

    @property
    def blob(self) -> str:
        """Where its bytes are. Another upload under the same key has another name, and overwrites nothing."""
        return f"{self.state.id}/{self.state.digest}"

    def imported(self, rows: int, *, at: datetime) -> None:
        """It was read."""
        facts = {"file_id": self.state.id, "rows": rows, "created_at": at}
        self._raise(lambda sequence: FileImported.model_validate({**facts, "sequence": sequence}), rows=rows)
