"""Occurrences worked out by hand; the first examples are those of Microsoft's page on the timer trigger."""

from datetime import UTC, datetime

import pytest

from devstack.functions.schedule import UnsupportedSchedule, parse_schedule

# A Friday.
NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 */5 * * * *", "2026-01-02T03:05:00"),
        ("0 0 * * * *", "2026-01-02T04:00:00"),
        ("0 0 */2 * * *", "2026-01-02T04:00:00"),
        ("0 0 9-17 * * *", "2026-01-02T09:00:00"),
        ("0 30 9 * * *", "2026-01-02T09:30:00"),
        ("0 30 9 * * 1-5", "2026-01-02T09:30:00"),
        ("0 30 9 * Jan Mon", "2026-01-05T09:30:00"),
        ("* * * * * *", "2026-01-02T03:04:06"),
        ("5 4 3 * * *", "2026-01-03T03:04:05"),
        ("0 0 0 1 * *", "2026-02-01T00:00:00"),
        ("0 0 0 29 2 *", "2028-02-29T00:00:00"),
        ("0 0 0 1 Jan *", "2027-01-01T00:00:00"),
        ("10,20 4 3 * * Friday", "2026-01-02T03:04:10"),
        ("0 59/1 23 * * *", "2026-01-02T23:59:00"),
        ("*/15 * * * *", "2026-01-02T03:15:00"),
    ],
)
def test_the_next_occurrence(expression: str, expected: str) -> None:
    assert parse_schedule(expression).next_after(NOW) == at(expected)


def test_a_time_span_is_an_interval() -> None:
    assert parse_schedule("01:00:30").next_after(NOW) == datetime(2026, 1, 2, 4, 4, 35, 678901, UTC)


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "* * *",
        "60 * * * * *",
        "0 0 0 32 * *",
        "0 0 L * * *",
        "0 0 0 * * 7",
        "5-1 * * * * *",
        "*/0 * * * * *",
    ],
)
def test_what_is_not_understood_is_refused(expression: str) -> None:
    with pytest.raises(UnsupportedSchedule):
        parse_schedule(expression)


def test_a_schedule_that_never_occurs_is_refused() -> None:
    with pytest.raises(UnsupportedSchedule, match="never occurs"):
        parse_schedule("0 0 0 31 2 *").next_after(NOW)
