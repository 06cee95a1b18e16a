"""Holds the records of a run, each a frozen one: nothing is concluded here, and nothing is looked up.

The observer writes them in this order: a client's request before it is sent, an answer when it comes. ``at``
is in seconds of one clock that all writers share.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Outcome = Literal["acknowledged", "refused", "unknown"]
"""``refused``: the change was certainly not made. ``unknown``: no answer, or an inconclusive one."""

Call = Literal["create", "change", "delete", "read"]


class Noted(BaseModel):
    """One record. ``at``: the time when it happened."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    at: float


class Attempted(Noted):
    """A client is about to send a request; ``operation`` and ``number`` together name it.

    Every value that it sets is used once, which identifies the request that set it.
    """

    type: Literal["attempted"] = "attempted"
    operation: str
    number: int
    call: Call
    aggregate: str | None = None
    events: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """The events that it must cause if it happens at all, by their actions, each with the values that it carries."""
    key: str | None = None
    if_match: str | None = None
    reuses_key: bool = False
    """The key was used, and answered, for another operation before: this one must not happen."""
    session: str | None = None
    """A read shows nothing older than earlier answers within this session; None: that is not promised."""

    @property
    def values(self) -> dict[str, Any]:
        """The values that it sets."""
        return {name: value for each in self.events.values() for name, value in each.items()}


class Answered(Noted):
    """The outcome of an attempt. ``status`` is HTTP's, and None without an answer."""

    type: Literal["answered"] = "answered"
    operation: str
    number: int
    outcome: Outcome
    status: int | None = None
    replayed: bool = False
    aggregate: str | None = None
    """The aggregate that the answer names."""
    sequence: int | None = None
    """The sequence of the last event, by the answer."""
    body: dict[str, Any] | None = None
    etag: str | None = None


class Stored(Noted):
    """A commit of the store had this event, as seen by a watcher of the store itself."""

    type: Literal["stored"] = "stored"
    event: str
    aggregate: str
    action: str
    sequence: int
    """-1 if it has none."""
    body: dict[str, Any]


class HandedOut(Noted):
    """A subscriber was handed a message. ``broker_number`` is the broker's own, one for each message stored."""

    type: Literal["delivered"] = "delivered"
    broker_number: int
    delivery_count: int
    lock: str
    message_id: str
    aggregate: str
    session: str | None = None
    """None: it is not known."""
    subject: str
    sequence: int
    unsequenced: bool = False
    body: dict[str, Any]


class Completed(Noted):
    """The broker has confirmed the completion of a message."""

    type: Literal["completed"] = "completed"
    broker_number: int


class Poisoned(Noted):
    """A broken event document was written past the service. ``stored`` is None when the answer was lost."""

    type: Literal["poisoned"] = "poisoned"
    document: str
    partition: str
    stored: bool | None
    aggregate: str | None = None
    """Set when it lies in the partition of an aggregate."""


class Unsequenced(Noted):
    """An event without a sequence was written past the service: once before, and once when it is stored."""

    type: Literal["unsequenced"] = "unsequenced"
    document: str
    aggregate: str
    stored: bool = False
    """False: not known."""


class DiscardAsked(Noted):
    """An operator is about to discard a document. Its consequences show whether it was done."""

    type: Literal["discarding"] = "discarding"
    document: str


class Discarded(Noted):
    """The service confirmed that a document is discarded."""

    type: Literal["discarded"] = "discarded"
    document: str
    surely: bool = False
    """Whether all clocks agree: from then on it is not sent any more."""


class Free(Noted):
    """The service answered, at this time of the clock that it shows, that no event of the aggregate is parked."""

    type: Literal["free"] = "free"
    aggregate: str
    time: datetime


class Stolen(Noted):
    """A message is about to be taken away from the service's own subscription, for good or into its dead letters."""

    type: Literal["stolen"] = "stolen"
    aggregate: str
    sequence: int
    """-1 if the message has none."""
    lost: bool
    """Whether it is lost for good and never applied."""


class SeenEntry(Noted):
    """A version of a read model's entry that a reader could have seen."""

    type: Literal["shown"] = "shown"
    aggregate: str
    sequence: int
    event: str | None
    """The event that made this version; None: the version was read from the aggregate."""
    applied_at: str
    data: dict[str, Any] | None
    """None: the entry is deleted."""


class Struck(Noted):
    """A fault; ``done`` is False when what it aimed at was not there."""

    type: Literal["struck"] = "struck"
    fault: str
    target: str
    seconds: float
    done: bool


class Ended(Noted):
    """A process that must run for ever ended by itself."""

    type: Literal["ended"] = "ended"
    instance: str
    why: str


class FinallyListed(Noted):
    """An aggregate in the final list."""

    type: Literal["found"] = "found"
    aggregate: str
    sequence: int | None = None
    body: dict[str, Any]


class SeenParked(Noted):
    """An event was seen among the parked ones, for the first time."""

    type: Literal["parked"] = "parked"
    event: str
    aggregate: str | None
    action: str | None = None
    reason: str | None = None
    parked_at: datetime


Record = Annotated[
    Attempted
    | Answered
    | Stored
    | HandedOut
    | Completed
    | Poisoned
    | Unsequenced
    | DiscardAsked
    | Discarded
    | Free
    | Stolen
    | SeenEntry
    | Struck
    | Ended
    | FinallyListed
    | SeenParked,
    Field(discriminator="type"),
]
