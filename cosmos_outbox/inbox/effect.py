"""What a subscriber remembers of effects: a marker for each aggregate, and a mark for each event.

Marker and marks are what one transaction changes (``one-transaction``); a mark that is *over* is never changed again.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum, StrEnum

from cosmos_outbox.inbox.event import Event


class MarkState(StrEnum):
    """What is known of one event's effect."""

    WAITING = "waiting"
    """It is not its turn, or its effect failed. The mark holds the event, since its message is done."""
    STARTED = "started"
    """A process runs the effect, or died while it did."""
    HANDLED = "handled"
    DISCARDED = "discarded"
    """Given up by an operator or by age."""
    UNCERTAIN = "may have been handled"
    """A process died, or an answer was lost, between the effect and its record, and nobody runs the effect again."""

    @property
    def is_over(self) -> bool:
        """Whether the effect is never run any more."""
        return self not in (MarkState.WAITING, MarkState.STARTED)


@dataclass(frozen=True)
class Mark:
    """One event's effect. The id of the mark follows from the event's id."""

    event_id: str
    state: MarkState
    sequence: int | None
    at: datetime
    """Since when the event is in this state."""
    waits: Event | None = field(default=None, repr=False)
    """The event, where no message brings it again. It is counted in the marker."""
    kept: Event | None = field(default=None, repr=False)
    """The event of an effect that may have been handled: an operator may want it run again. It is not counted."""
    by: str = ""
    """The call that runs the effect, or has: so that a call whose answer was lost knows its own write."""
    failures: int = 0
    failing_since: datetime | None = None
    reason: str = ""
    """Of a failure, or of what was given up; nothing personal."""
    version: str | None = None
    """None: not stored yet."""

    def is_started_by(self, by: str | None) -> bool:
        """Whether this call has started the effect, and nobody has changed that since."""
        return self.state is MarkState.STARTED and self.by == by


@dataclass(frozen=True)
class EffectMarker:
    """How far one aggregate's effects have come."""

    last: int | None = None
    """The last sequence that is handled or given up; None: the subscriber has begun with no sequence yet."""
    waiting: int = 0
    """How many marks hold an event."""
    running: str | None = None
    """The event that is next and was started: no other may take its place."""
    version: str | None = None
    """None: not stored yet."""


@dataclass(frozen=True)
class SeenMark:
    """Marker and mark as they were read; None: this read saw no mark."""

    marker: EffectMarker
    mark: Mark | None


class Begin(Enum):
    """With which event of an aggregate a subscriber begins that knows nothing of the aggregate yet."""

    AT_ONE = "events wait until the first one of the aggregate has come"
    WHERE_SEEN = "the first event that comes is the beginning; what came before it is not for this subscriber"


class Unsure(Enum):
    """What is done about an effect that may have taken place: a process died while it ran, or its answer was lost."""

    RUN_AGAIN = "run it again: the service that is called knows the event's id"
    SET_ASIDE = "do not run it again; tell an operator"


@dataclass(frozen=True)
class EffectRules:
    """What a subscriber chooses, and how long it takes. ValueError: ids would be forgotten too early."""

    events_come_for: timedelta
    """How long after its creation an event can still come: its TTL, and the limits of parking and of waiting."""
    ids_are_kept_for: timedelta
    waits_at_most: timedelta
    """What waits for longer is given up."""
    unsure: Unsure = Unsure.RUN_AGAIN
    begin: Begin = Begin.AT_ONE
    effect_seconds: float = 30.0
    """The longest that an effect may take."""
    call_seconds: float = 120.0
    """The longest that a call may take, from the start of an effect to its record; longer than the effect."""

    @property
    def before_and_after_seconds(self) -> float:
        """The longest from the start's decision to the effect, and from the effect's end to its record."""
        return (self.call_seconds - self.effect_seconds) / 2

    def __post_init__(self) -> None:
        if self.ids_are_kept_for <= self.events_come_for:  # ids-outlive-events
            raise ValueError(
                f"ids are kept for {self.ids_are_kept_for}, and events come for {self.events_come_for}: keep ids longer"
            )
        if self.events_come_for <= self.waits_at_most:
            raise ValueError("events come for longer than they may wait: add the limits up")
        if self.call_seconds <= 2 * self.effect_seconds:
            raise ValueError("a call must allow its effect, and the writes before and after it, enough time")
