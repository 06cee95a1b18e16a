"""What held up a page of the feed has one of few names, by which failures are counted, stored and shown.

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
