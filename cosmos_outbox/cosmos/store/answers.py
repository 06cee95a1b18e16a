"""A success whose body does not say what it must is no answer: what was asked for may be stored or not.

A proxy can empty a body, or put another in its place. The SDK then raises errors of Python, such as TypeError for an
empty body.
"""

from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from typing import Any

from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.cosmos.store.writes import Write
from cosmos_outbox.kernel.clock import utc_now

UNREADABLE = (KeyError, TypeError, ValueError)
"""What the SDK, and the functions below, raise for such a body. Without an answer before, it is a bug."""

NO_ANSWER = Failure(Kind.PASSING, "an answer that cannot be read")


def etags(results: Sequence[dict[str, Any]], writes: Sequence[Write]) -> list[str]:
    """The new ETag of each write of a batch ("" for a delete). Raises ValueError."""
    return [str(result.get("eTag", "")) for result, _ in zip(results, writes, strict=True)]


def age(item: dict[str, Any], date: str | None) -> float:
    """The seconds from an item's last write to the answer of this date, both by the service's clock. Raises KeyError.

    Without a readable date, which a proxy may have removed, the time of the answer is this machine's.
    """
    try:
        answered_at = parsedate_to_datetime(date or "").timestamp()
    except ValueError:
        answered_at = utc_now().timestamp()
    return float(answered_at - item["_ts"])
