"""Every error of a write, a delivery and a race. An adapter raises these in place of its SDK's errors.

::

    OutboxError
    ├── AggregateNotFound      no such aggregate, or it was deleted
    ├── PreconditionFailed     the version that the caller goes by is not the newest
    ├── AlreadyExists          a document that was to be created is there
    ├── ConcurrentChange       others won the race for this aggregate each time
    ├── IdempotencyKeyReused   the key was used before, with another request
    ├── AnswerErased           the first answer to this key was erased
    ├── RefusedBefore          the aggregate refused the request with this key when it first came
    ├── ChangeTooLarge         the change does not fit into one transaction
    ├── Unpublishable          the change holds what JSON's readers do not agree on
    ├── UnknownContinuation    a list cannot go on from this token
    ├── Throttled              the store asks to slow down; nothing was written
    ├── Unavailable            the store cannot be used right now
    │   └── OutcomeUnknown     the change may be stored, or not
    ├── NotDelivered           the broker did not accept all events: send them again
    ├── NotParked              no such event or aggregate is parked
    ├── NotStuck               nothing is stuck under this id
    ├── NotInTheWay            a parked event waits behind another one, and cannot be discarded
    ├── BeingReplayed          another replay of the aggregate is under way
    └── StillUnsendable        a parked event cannot be sent as it is

The name of the base ends in "Error"; every other error is named for what happened. A message tells the reader what to
do, and carries neither personal data nor keys.

What held up a page of the feed has one of few names, by which failures are counted, stored and shown.

A name is taken from the error itself, where it is raised or translated: nothing reads a text to find it.
"""

from enum import StrEnum


class Hindrance(StrEnum):
    """Why a round of the relay failed: the values of ``outbox.reason`` of ``outbox.relay.failed_rounds``."""

    BROKER_AWAY = "broker_away"
    """It cannot be reached, did not answer, or failed."""
    BROKER_THROTTLES = "broker_throttles"
    BROKER_REFUSES = "broker_refuses"
    """It refuses whatever is sent: a full, missing or disabled topic, a key, token or role."""
    BATCH_REFUSED = "batch_refused"
    """It refuses the events of several aggregates alike, and these wait behind that for a while."""
    STORE_AWAY = "store_away"
    STORE_THROTTLES = "store_throttles"
    TOO_SLOW = "too_slow"
    """The time for the page was over."""
    RACED = "raced"
    """Operators or other instances kept parking and replaying the same aggregate."""
    MISCONFIGURED = "misconfigured"
    """A setting, or a container that is missing."""
    BUG = "bug"
    """None of the errors that are expected."""


class OutboxError(Exception):
    """Base of every error that the outbox raises on purpose."""


class AggregateNotFound(OutboxError):
    """There is no such aggregate, or it was deleted: the caller cannot tell the two apart, and need not."""


class PreconditionFailed(OutboxError):
    """The version that the caller goes by is not the newest: the caller must read again and decide again."""


class AlreadyExists(OutboxError):
    """A document that was to be created is there already: the caller must read it and decide again."""


class ConcurrentChange(OutboxError):
    """Other writers won the race for this aggregate each time the change was re-applied."""

    retry_after_seconds: float = 1.0


class IdempotencyKeyReused(OutboxError):
    """The idempotency key was used before, with another request: a new request needs a new key."""


class AnswerErased(OutboxError):
    """The request was answered before, and what it created was deleted since, and the answer with it."""


class RefusedBefore(OutboxError):
    """The aggregate refused the request when it first came, and would not refuse it now; a refusal is an answer too."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status
        """Of the first answer."""


class ChangeTooLarge(OutboxError):
    """One unit of work does not fit into one transaction, so it cannot be stored atomically."""


class Unpublishable(OutboxError):
    """The change holds what JSON's readers do not agree on, or an id that it must not have; nothing is stored."""


class UnknownContinuation(OutboxError):
    """The continuation token was not made for this list, or is damaged: start again without a token."""


class Throttled(OutboxError):
    """The store asks to slow down. Nothing was written."""

    def __init__(self, message: str, *, retry_after_seconds: float) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class Unavailable(OutboxError):
    """The store cannot be used right now: try again later."""

    def __init__(self, message: str, *, retry_after_seconds: float = 5.0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class OutcomeUnknown(Unavailable):
    """The store's answer was lost: the change may be stored, with its events, or not at all."""


class NotDelivered(OutboxError):
    """The broker did not accept every event. The whole page is sent again, the accepted events too."""

    retry_after_seconds: float = 5.0

    def __init__(self, message: str, why: Hindrance = Hindrance.BROKER_AWAY) -> None:
        super().__init__(message)
        self.why = why


class NotParked(OutboxError):
    """No such event or aggregate is parked."""


class NotStuck(OutboxError):
    """Nothing is stuck under this id, or not any more: neither an event nor a message."""


class NotInTheWay(OutboxError):
    """Only the event that the broker refused can be discarded; those behind it are sent once it is out of the way."""


class BeingReplayed(OutboxError):
    """Another replay of the aggregate is under way, or died within the last minutes."""


class StillUnsendable(OutboxError):
    """A parked event cannot be sent as it is. The events before it were sent; the events behind it wait."""


def hindrance(error: BaseException) -> Hindrance:
    """What an error means for a page of the feed, where the error is one of ours; a bug is any other."""
    match error:
        case NotDelivered():
            return error.why
        case Throttled():
            return Hindrance.STORE_THROTTLES
        case Unavailable():
            return Hindrance.STORE_AWAY
        case _:
            return Hindrance.BUG
