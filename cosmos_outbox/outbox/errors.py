"""The errors of writes, deliveries and races. An adapter raises these in place of its SDK's errors.

::

    OutboxError
    ├── AggregateNotFound      no such aggregate, or it was deleted
    ├── PreconditionFailed     the version that the caller names is not the newest
    ├── AlreadyExists          a document that was to be created exists
    ├── ConcurrentChange       other writers won every race for this aggregate
    ├── IdempotencyKeyReused   the key was used before, with another request
    ├── AnswerErased           the first answer to this key was erased
    ├── RefusedBefore          the aggregate refused the request with this key when it first came
    ├── ChangeTooLarge         the change does not fit into one transaction
    ├── Unpublishable          the change holds values that JSON parsers read differently
    ├── UnknownContinuation    a list cannot continue from this token
    ├── Throttled              the store asks to slow down; nothing was written
    ├── Unavailable            the store cannot be used right now
    │   └── OutcomeUnknown     the change may or may not be stored
    ├── NotDelivered           the broker did not accept all events: send them again
    ├── NotParked              no such event or aggregate is parked
    ├── NotStuck               nothing is stuck under this id
    ├── NotInTheWay            a parked event waits behind another one, and cannot be discarded
    ├── BeingReplayed          another replay of the aggregate is running
    └── StillUnsendable        a parked event cannot be sent as it is

The name of the base ends in "Error"; every other error is named for what happened. A message contains the remedy, and
neither personal data nor keys.

The reason for a delayed page of the feed is one of a few names, by which failures are counted, stored and shown. It is
set where the error is raised or translated, and never parsed from a text.
"""

from enum import StrEnum


class FailureReason(StrEnum):
    """The reason why a round of the relay failed: ``outbox.reason`` of the metric ``outbox.relay.failed_rounds``."""

    BROKER_AWAY = "broker_away"
    """The broker cannot be reached, did not answer, or failed."""
    BROKER_THROTTLES = "broker_throttles"
    BROKER_REFUSES = "broker_refuses"
    """The broker refuses all messages: a full, missing or disabled topic, or a wrong key, token or role."""
    BATCH_REFUSED = "batch_refused"
    """The broker refuses the events of several aggregates for the same reason; they wait for a while."""
    STORE_AWAY = "store_away"
    STORE_THROTTLES = "store_throttles"
    TOO_SLOW = "too_slow"
    """The time for the page ran out."""
    RACED = "raced"
    """Operators or other instances kept parking and replaying the same aggregate."""
    MISCONFIGURED = "misconfigured"
    """A setting is wrong, or a container is missing."""
    BUG = "bug"
    """An unexpected error."""


class OutboxError(Exception):
    """Base of every error that the outbox raises on purpose."""


class AggregateNotFound(OutboxError):
    """There is no such aggregate, or it was deleted: the caller cannot distinguish the two, and need not."""


class PreconditionFailed(OutboxError):
    """The version that the caller names is not the newest: the caller must read again and decide again."""


class AlreadyExists(OutboxError):
    """A document that was to be created exists already: the caller must read it and decide again."""


class ConcurrentChange(OutboxError):
    """Other writers won the race for this aggregate in every attempt at the change."""

    retry_after_seconds: float = 1.0


class IdempotencyKeyReused(OutboxError):
    """The idempotency key was used before, with another request: a new request needs a new key."""


class AnswerErased(OutboxError):
    """The request was answered before, but its aggregate, and with it the answer, was deleted since."""


class RefusedBefore(OutboxError):
    """The aggregate refused the request at its first arrival, and would not now; a repetition gets the first answer."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status
        """The status of the first answer."""


class ChangeTooLarge(OutboxError):
    """The unit of work does not fit into one transaction, so it cannot be stored atomically."""


class Unpublishable(OutboxError):
    """The change holds values that JSON parsers read differently, or an invalid id; nothing is stored."""


class UnknownContinuation(OutboxError):
    """The continuation token was not made for this list, or is damaged: start again without a token."""


class Throttled(OutboxError):
    """The store asks to slow down. Nothing was written."""

    def __init__(self, message: str, *, retry_after_seconds: float) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class Unavailable(OutboxError):
    """The store is unavailable: try again later."""

    def __init__(self, message: str, *, retry_after_seconds: float = 5.0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class OutcomeUnknown(Unavailable):
    """The store's answer was lost: the change may be stored, with its events, or not at all."""


class NotDelivered(OutboxError):
    """The broker did not accept every event. The whole page is sent again, including accepted events."""

    retry_after_seconds: float = 5.0

    def __init__(self, message: str, why: FailureReason = FailureReason.BROKER_AWAY) -> None:
        super().__init__(message)
        self.why = why


class NotParked(OutboxError):
    """No such event or aggregate is parked."""


class NotStuck(OutboxError):
    """Nothing is stuck under this id, or not any more: neither an event nor a message."""


class NotInTheWay(OutboxError):
    """Only the event that the broker refused can be discarded; those behind it are sent once it is resolved."""


class BeingReplayed(OutboxError):
    """Another replay of the aggregate is running, or died within the last minutes."""


class StillUnsendable(OutboxError):
    """A parked event cannot be sent. The events before it were sent; those behind it wait."""


def hindrance(error: BaseException) -> FailureReason:
    """Returns the reason that an error of ours is for a page of the feed; any other error is a bug."""
    match error:
        case NotDelivered():
            return error.why
        case Throttled():
            return FailureReason.STORE_THROTTLES
        case Unavailable():
            return FailureReason.STORE_AWAY
        case _:
            return FailureReason.BUG
