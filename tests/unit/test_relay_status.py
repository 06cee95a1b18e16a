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
    assert Progress(written, lease, 5, at(waiting), 7).has_passed(written, "0:-1#7") is passed


@pytest.mark.parametrize(
    ("newest", "token", "passed"),
    [
        (7, "0:-1#7", True),
        (8, "0:-1#7#1=6", True),
        (6, "0:-1#7", None),
        (None, "0:-1#7", None),
        (7, None, None),
        (7, "0:7", True),
    ],
)
def test_that_nothing_waits_is_not_known_of_a_replica_that_lags(
    newest: int | None, token: str | None, *, passed: bool | None
) -> None:
    written = datetime.fromtimestamp(1000, UTC)
    assert Progress(written, "0", 5, None, newest).has_passed(written, token) is passed
    assert Progress(written, "0", 5, at(1001), newest).has_passed(written, token) is True, (
        "what waits is younger"
    )
