"""A publisher of one's own, for a broker that the library does not know: what it is made of.

:mod:`cosmos_outbox.outbox.publisher` says what it promises. Give the service a function that opens it,
``Service(..., transport=open_publisher)``; ``cosmos_outbox.testing.PublisherContract`` tests any.
"""

from cosmos_outbox.outbox.errors import FailureReason
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.outbox.publisher import (
    Accepted,
    AggregateEvents,
    CloudEvents,
    Failing,
    Guarantees,
    Outcome,
    Publisher,
    Refused,
    Unknown,
)
from cosmos_outbox.settings.transports import PublisherOf

__all__ = [
    "Accepted",
    "AggregateEvents",
    "CloudEvents",
    "Failing",
    "FailureReason",
    "Guarantees",
    "OutboxEvent",
    "Outcome",
    "Publisher",
    "PublisherOf",
    "Refused",
    "Unknown",
]
