"""The errors that a program may want to catch, and those that its handlers raise; each message says what to do.

::

    OutboxError                 of a write, and of a read of aggregates
    ├── AggregateNotFound       no such aggregate, or it was deleted
    ├── PreconditionFailed      the version that the caller goes by is not the newest
    ├── AlreadyExists           a document that was to be created is there
    ├── ConcurrentChange        others won the race for this aggregate each time
    ├── IdempotencyKeyReused    the key was used before, with another request
    ├── AnswerErased            the first answer to this key was erased
    ├── RefusedBefore           the aggregate refused the request with this key when it first came
    ├── ChangeTooLarge          the change does not fit into one transaction
    ├── Unpublishable           the change holds what JSON's readers do not agree on
    ├── UnknownContinuation     a list cannot go on from this token
    ├── Throttled               the store asks to slow down; nothing was written
    └── Unavailable             the store cannot be used right now
        └── OutcomeUnknown      the change may be stored, with its events, or not
    InboxError                  of a subscriber
    ├── StoreUnavailable        the subscriber's store, or its source, cannot be used right now
    │   └── EffectUnavailable   an effect raises it: the service that it calls is away, and has done nothing
    ├── EffectRejected          an effect raises it: it surely did not take place, for a reason of its own
    └── ReactionRefused         a reaction raises it: the target does not take the change
    InfraError                  of a setting, the deployment, or a request
    ├── Misconfigured           a setting or the deployment is missing or wrong
    ├── NotForwardedYet         the relay has not forwarded what must be forwarded first
    ├── Overloaded              the relay is too far behind to take a change; nothing was stored
    └── RequestError            an HTTP request is wrong
        └── InvalidRequest      it breaks a rule: ``errors`` names each wrong field
            ├── UnsupportedMediaType   its body is of a kind that the call does not take
            └── RequestTooLarge        its body is over the limit

Each is defined on the floor that knows its meaning, with those that only operators meet.
"""

from cosmos_outbox.http.problems import InvalidRequest, RequestError, RequestTooLarge, UnsupportedMediaType
from cosmos_outbox.inbox.errors import (
    EffectRejected,
    EffectUnavailable,
    InboxError,
    ReactionRefused,
    StoreUnavailable,
)
from cosmos_outbox.outbox.errors import (
    AggregateNotFound,
    AlreadyExists,
    AnswerErased,
    ChangeTooLarge,
    ConcurrentChange,
    IdempotencyKeyReused,
    OutboxError,
    OutcomeUnknown,
    PreconditionFailed,
    RefusedBefore,
    Throttled,
    Unavailable,
    UnknownContinuation,
    Unpublishable,
)
from cosmos_outbox.settings.errors import InfraError, Misconfigured, NotForwardedYet, Overloaded

__all__ = [
    "AggregateNotFound",
    "AlreadyExists",
    "AnswerErased",
    "ChangeTooLarge",
    "ConcurrentChange",
    "EffectRejected",
    "EffectUnavailable",
    "IdempotencyKeyReused",
    "InboxError",
    "InfraError",
    "InvalidRequest",
    "Misconfigured",
    "NotForwardedYet",
    "OutboxError",
    "OutcomeUnknown",
    "Overloaded",
    "PreconditionFailed",
    "ReactionRefused",
    "RefusedBefore",
    "RequestError",
    "RequestTooLarge",
    "StoreUnavailable",
    "Throttled",
    "Unavailable",
    "UnknownContinuation",
    "Unpublishable",
    "UnsupportedMediaType",
]
