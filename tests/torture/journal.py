"""Each process writes down what happens to it, at once, in an append-only file.

A record is one line and one ``write``: a record that was written outlives a SIGKILL of its process. Times are seconds
of the machine's monotonic clock, which all processes share.
"""

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

Outcome = Literal["acknowledged", "refused", "unknown"]
"""``refused``: the change was certainly not made. ``unknown``: no answer, or one that leaves it open."""

Call = Literal["create", "patch", "delete"]


class Entry(BaseModel):
    """One record. ``at``: when it was written."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    at: float = Field(default_factory=time.monotonic)


class Attempted(Entry):
    """A client is about to send a request; ``operation`` and ``number`` together name it.

    It sets each of ``properties`` to a value that names the operation, so that one can see who set it.
    """

    type: Literal["attempted"] = "attempted"
    operation: str
    number: int
    call: Call
    contact: str | None = None
    properties: tuple[str, ...] = ()
    key: str | None = None
    if_match: str | None = None
    reuses_key: bool = False
    """The key was used, and answered, for another operation before: this one must not happen."""


class Answered(Entry):
    """What became of an attempt. ``status`` is None without an answer."""

    type: Literal["answered"] = "answered"
    operation: str
    number: int
    outcome: Outcome
    status: int | None = None
    replayed: bool = False
    body: dict[str, Any] | None = None
    etag: str | None = None


class Delivered(Entry):
    """The subscriber was handed a message. ``broker_number`` is the broker's own, one for each message stored."""

    type: Literal["delivered"] = "delivered"
    broker_number: int
    delivery_count: int
    lock: str
    message_id: str
    session: str
    subject: str
    sequence: int
    unsequenced: bool = False
    body: dict[str, Any]


class Completed(Entry):
    """The broker has confirmed that a message is done with."""

    type: Literal["completed"] = "completed"
    broker_number: int


class Poisoned(Entry):
    """A broken event document was written past the API. ``stored`` is None when the answer was lost."""

    type: Literal["poisoned"] = "poisoned"
    document: str
    partition: str
    stored: bool | None
    contact: str | None = None
    """Set when it lies in the partition of a contact."""


class Unsequenced(Entry):
    """An event without a sequence was written past the API: once before, and once when it is stored."""

    type: Literal["unsequenced"] = "unsequenced"
    document: str
    contact: str
    stored: bool = False
    """False: nobody knows."""


class Discarded(Entry):
    """The API confirmed that a document is given up."""

    type: Literal["discarded"] = "discarded"
    document: str


class Free(Entry):
    """The API said, at this time of the clock that it shows, that no event of the contact is parked."""

    type: Literal["free"] = "free"
    contact: str
    time: datetime = Field(default_factory=lambda: datetime.now(UTC))


class Stolen(Entry):
    """A message is about to be taken away from the app's own subscription, for good or into its dead letters."""

    type: Literal["stolen"] = "stolen"
    contact: str
    sequence: int
    """-1 if the message has none."""
    lost: bool
    """For good: nobody will ever apply it."""


class Shown(Entry):
    """The directory's change feed showed a version of an entry."""

    type: Literal["shown"] = "shown"
    contact: str
    sequence: int
    event: str | None
    """The event that made this version; None: the version was read from the contact."""
    applied_at: str
    data: dict[str, Any] | None
    """None: the entry is deleted."""


class Struck(Entry):
    """The nemesis did something; ``done`` is False when what it aimed at was not there."""

    type: Literal["struck"] = "struck"
    fault: str
    target: str
    seconds: float
    done: bool


class Found(Entry):
    """A contact in the final list."""

    type: Literal["found"] = "found"
    body: dict[str, Any]


class Parked(Entry):
    """An event was seen in the list of parked ones, for the first time."""

    type: Literal["parked"] = "parked"
    body: dict[str, Any]


Record = Annotated[
    Attempted
    | Answered
    | Delivered
    | Completed
    | Poisoned
    | Unsequenced
    | Discarded
    | Free
    | Stolen
    | Shown
    | Struck
    | Found
    | Parked,
    Field(discriminator="type"),
]
_RECORD: TypeAdapter[Record] = TypeAdapter(Record)


class Journal:
    """Appends records to one file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, entry: Entry) -> None:
        """The record is in the file when this returns."""
        os.write(self._file, entry.model_dump_json().encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)


class Reader:
    """Reads a file that may still grow: each call gives what is new."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new(self) -> Iterator[Record]:
        """The complete records that were not given before."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                yield _RECORD.validate_json(line)
