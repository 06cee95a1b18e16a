"""Every error that this service raises on purpose, as one tree.

::

    ContactsError
    ├── InvalidRequest            the caller's input breaks a rule                     400
    │   ├── UnsupportedMediaType  the body is of a kind that this call does not take   415
    │   └── RequestTooLarge       the body is over the limit                           413
    ├── ContactNotFound           no such contact, or it was deleted                   404
    ├── NotParked                 no such event or contact is parked                   404
    ├── StillUnsendable           a parked event cannot be sent as it is               409
    ├── PreconditionFailed        If-Match names a version that is not the newest      412
    ├── ConcurrentChange          others kept winning the race for this contact        409
    ├── RequestInProgress         the same request is being answered at this moment    409
    ├── IdempotencyKeyReused      the key came before, with another body               422
    ├── ChangeTooLarge            one change does not fit a transactional batch        413
    ├── Throttled                 the store asks to slow down; nothing was written     429
    ├── Unavailable               the store cannot be used right now                   503
    │   └── OutcomeUnknown        a change may or may not have been stored             503
    ├── NotDelivered              the broker did not accept all events: send again     503
    └── Misconfigured             a setting is missing or makes no sense               at first use

Errors of the SDKs are turned into these at one edge each: ``infra/cosmos/errors.py`` and
``infra/servicebus/errors.py``. Messages tell the reader what to do, and never carry personal data or keys.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class FieldError:
    """One thing that is wrong with a request."""

    field: str
    """Where: a path such as ``name.firstName``, a header's or a query parameter's name, or ``body``."""
    reason: str
    """What is wrong and what would be right, for the caller to read."""


class ContactsError(Exception):
    """Base of every error that this service raises on purpose."""


class InvalidRequest(ContactsError):
    """The caller's input breaks a rule; :attr:`errors` names every field that does."""

    def __init__(self, *errors: FieldError) -> None:
        super().__init__("; ".join(f"{error.field}: {error.reason}" for error in errors))
        self.errors = errors


class UnsupportedMediaType(InvalidRequest):
    """The body is of a kind that this call does not take."""


class RequestTooLarge(InvalidRequest):
    """The body is over the limit."""


class ContactNotFound(ContactsError):
    """No such contact, or it was deleted: the caller cannot tell the two apart, and need not."""


class NotParked(ContactsError):
    """No such event or contact is parked."""


class StillUnsendable(ContactsError):
    """A parked event cannot be sent as it is: those before it have been, those behind it wait."""


class PreconditionFailed(ContactsError):
    """The caller pinned a version that is not the newest one; it must read again and decide anew."""


class ConcurrentChange(ContactsError):
    """Other writers won the race for this contact each time the change was re-applied."""


class RequestInProgress(ContactsError):
    """The same request, by its idempotency key, was being answered at the same time: asking again gets the answer."""


class IdempotencyKeyReused(ContactsError):
    """The idempotency key came before, with another body; a new request needs a new key."""


class ChangeTooLarge(ContactsError):
    """One unit of work does not fit into one transactional batch, so it cannot be stored atomically."""


class Throttled(ContactsError):
    """The store asks to slow down. Nothing was written."""

    def __init__(self, message: str, *, retry_after_seconds: float) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class Unavailable(ContactsError):
    """The store cannot be used right now; trying again later is right."""

    retry_after_seconds: float = 5.0


class OutcomeUnknown(Unavailable):
    """The store's answer was lost and could not be found out: the change may be stored, with its events, or not."""


class NotDelivered(ContactsError):
    """The broker did not accept every event. What it accepted is safe to send again: it drops duplicates by id."""

    retry_after_seconds: float = 5.0


class Misconfigured(ContactsError):
    """A setting is missing or makes no sense; the message names it and says what it should be."""
