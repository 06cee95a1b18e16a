"""Defines every error of a subscriber. An adapter raises these in place of its SDK's errors.

::

    InboxError
    ├── StoreUnavailable         the store or the source is unavailable: this affects every aggregate
    │   └── EffectUnavailable    the service that an effect calls is unavailable
    ├── EntryChanged             another writer changed the entry after it was read
    ├── ConcurrentUpdate         the entry changed each time it was about to be written
    ├── SourceBehind             the source does not show the event yet
    ├── Unstorable               the store will never take this entry as it is
    ├── Unreadable               the message is no event: it can never be applied
    ├── NotSetAside              no open record has this id
    ├── NotApplied               a record that was set aside cannot be applied
    ├── RecordChanged            another writer changed the record after it was read
    ├── EffectRejected           an effect did not take place, for a reason of its own
    ├── EffectFailed             an effect failed: its message waits
    ├── OutOfOrder               another event, or a missing one, comes first
    ├── EffectRefused            an effect is not run automatically: an operator decides
    ├── ReactionRefused          a reaction is refused by its target: an operator decides
    └── AlreadyProcessed         a message to be discarded has its outcome already

Any other error, such as one of a bug in a projection, is taken to affect one aggregate alone.
"""

from cosmos_outbox.kernel.loops import cause_of


class InboxError(Exception):
    """Base of every error that the inbox raises on purpose."""


class StoreUnavailable(InboxError):
    """The store or the source is unavailable: wait, then try again. A write may or may not have taken place."""

    def __init__(self, message: str, *, retry_after_seconds: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class EntryChanged(InboxError):
    """Another writer changed the entry after it was read, or an earlier attempt of this one: read it again."""


class ConcurrentUpdate(InboxError):
    """The entry changed each time it was about to be written: try again later."""


class SourceBehind(InboxError):
    """The source does not show the event, not even to a consistent read: the gap cannot be closed now."""


class Unreadable(InboxError):
    """The message is no event, or names no aggregate: it can never be applied. The text holds no personal data."""


class Unstorable(InboxError):
    """The store will never take this entry as it is, because of its size or its id."""


class NotSetAside(InboxError):
    """There is no record of this id, or it is closed and an open one was asked for."""


class NotApplied(InboxError):
    """A record that was set aside cannot be applied as it is; its reason explains why."""


class RecordChanged(InboxError):
    """Another writer changed the record after it was read: read it again."""


class EffectUnavailable(StoreUnavailable):
    """The service that an effect calls is unavailable and has done nothing: an effect raises this."""


class EffectRejected(InboxError):
    """An effect surely did not take place, for a reason of its own: an effect raises this, without personal data."""


class OutOfOrder(InboxError):
    """Another event of the aggregate, or a missing one, comes first: apply or discard that one."""


class EffectFailed(InboxError):
    """An effect was not done, or may be running elsewhere: its message is set aside, and the timer retries it."""


class EffectRefused(InboxError):
    """An effect is not run automatically, since it may have been done already.

    Its message is set aside for an operator. Later messages are not held up.
    """


class ReactionRefused(InboxError):
    """The target refuses the change: a reaction raises this, with a reason that holds no personal data.

    It is recorded, and the message is set aside for an operator. Later messages of the same kind are not held up.
    """


class AlreadyProcessed(InboxError):
    """A message to be discarded was applied, or found to change nothing: its copy is closed as applied."""


def reason_of(error: Exception) -> str:
    """Returns the reason for a record: an InboxError's text, or of any other error what :func:`cause_of` says."""
    return str(error) if isinstance(error, InboxError) else cause_of(error)
