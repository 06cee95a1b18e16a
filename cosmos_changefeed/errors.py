"""Defines this package's own errors; the SDK's errors pass through unchanged.

::

    ChangeFeedError
    ├── LeasesUnusable    the lease container, or a lease in it, cannot be used as it is
    ├── HandlerCancelled  the handler awaited a task that was cancelled
    ├── LeaseLost         another instance owns the lease now, or may own it
    └── FeedRangeGone     the physical partition behind a lease was split
"""


class ChangeFeedError(Exception):
    """Base of every error that the processor raises on purpose."""


class LeasesUnusable(ChangeFeedError):
    """The lease container, or a lease in it, cannot be used as it is; the message names the remedy."""


class HandlerCancelled(ChangeFeedError):
    """The handler raised CancelledError without being cancelled: it awaited a task that was cancelled."""

    def __init__(self) -> None:
        super().__init__(
            "the handler raised CancelledError without being cancelled: catch it where the cancelled task is awaited"
        )


class LeaseLost(ChangeFeedError):
    """This instance must stop working on a lease: another instance owns the lease, or may own it."""

    def __init__(self, lease_token: str, reason: str) -> None:
        super().__init__(f"lease {lease_token} is lost: {reason}")
        self.lease_token = lease_token


class FeedRangeGone(ChangeFeedError):
    """A feed range no longer lies in one physical partition (the service's 410, sub-status 1002)."""
