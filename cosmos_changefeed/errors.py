"""Defines this package's own errors; the SDK's errors pass through unchanged.

::

    ChangeFeedError
    ├── LeasesUnusable    the lease container, or a lease in it, cannot be used as it is
    ├── CallCancelled     the handler or the SDK awaited a task that was cancelled
    ├── LeaseLost         another instance owns the lease now, or may own it
    └── FeedRangeGone     the physical partition behind a lease was split
"""

import asyncio


class ChangeFeedError(Exception):
    """Base of every error that the processor raises on purpose."""


class LeasesUnusable(ChangeFeedError):
    """The lease container, or a lease in it, cannot be used as it is; the message names the remedy."""


class CallCancelled(ChangeFeedError):
    """A call raised CancelledError without being cancelled: it awaited a task that was cancelled elsewhere."""

    def __init__(self) -> None:
        super().__init__(
            "CancelledError was raised without a cancellation: catch it where the cancelled task is awaited, in the "
            "handler or in the credential"
        )


def failure_of(raised: Exception | asyncio.CancelledError) -> Exception:
    """Returns the error to report; a cancellation of this task itself is raised again.

    Otherwise a call that awaits a cancelled task would silently end the loop that makes it.
    """
    if isinstance(raised, Exception):
        return raised
    task = asyncio.current_task()
    if task is None or task.cancelling():
        raise raised
    failure = CallCancelled()
    failure.__cause__ = raised
    return failure


class LeaseLost(ChangeFeedError):
    """This instance must stop working on a lease: another instance owns the lease, or may own it."""

    def __init__(self, lease_token: str, reason: str) -> None:
        super().__init__(f"lease {lease_token} is lost: {reason}")
        self.lease_token = lease_token


class FeedRangeGone(ChangeFeedError):
    """A feed range no longer lies in one physical partition (the service's 410, sub-status 1002)."""
