"""What the relay has forwarded is told by the oldest change that waits, and by nothing where a lease is missing."""

from datetime import UTC, datetime

import pytest

from infra.relay_status import Progress


def at(second: int | None) -> datetime | None:
    return None if second is None else datetime.fromtimestamp(second, UTC)


@pytest.mark.parametrize(
    ("lease", "waiting", "passed"),
    [
        ("0", None, True),
        ("0", 1001, True),
        ("0", 1000, False),  # it may be the very event
        ("0", 999, False),
        (None, None, None),
    ],
)
def test_what_was_stored_at_1000_is_forwarded(
    lease: str | None, waiting: int | None, *, passed: bool | None
) -> None:
    written = datetime.fromtimestamp(1000, UTC)
    assert Progress(written, lease, 5, at(waiting)).has_passed(written) is passed


@pytest.mark.parametrize(
    ("newest", "token", "knows"),
    [
        (7, "0:-1#7", True),
        (8, "0:-1#7#1=6", True),
        (6, "0:-1#7", False),
        (None, "0:-1#7", False),
        (7, None, False),
        (7, "0:7", True),
    ],
)
def test_a_replica_that_lags_proves_nothing(newest: int | None, token: str | None, *, knows: bool) -> None:
    assert Progress(datetime.now(UTC), "0", 5, None, newest).knows(token) is knows
