"""Options that cannot work are refused by the constructor."""

from datetime import UTC, datetime, timedelta

import pytest

from cosmos_changefeed import ProcessorOptions, StartFrom
from cosmos_changefeed.partition_worker import pause_after

STARTED = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)


def test_the_defaults_are_those_of_the_functions_trigger() -> None:
    options = ProcessorOptions()

    assert (options.poll_interval, options.max_items) == (5.0, None)
    assert (options.acquire_interval, options.expiration_interval, options.renew_interval) == (
        13.0,
        60.0,
        17.0,
    )
    assert options.start == StartFrom.now()


@pytest.mark.parametrize(
    "values",
    [
        {"poll_interval": 0},
        {"acquire_interval": -1},
        {"max_items": 0},
        {"renew_interval": 10, "expiration_interval": 10},
    ],
)
def test_values_that_cannot_work_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"must be"):
        ProcessorOptions(**values)  # type: ignore[arg-type]  # mypy cannot match a dict's values to fields


@pytest.mark.parametrize("start", [StartFrom.now(), StartFrom.at(STARTED)])
def test_a_lease_is_never_made_again_from_now_or_from_a_time(start: StartFrom) -> None:
    with pytest.raises(ValueError, match=r"mend_leases needs StartFrom.beginning"):
        ProcessorOptions(mend_leases=True, start=start)


def test_now_is_a_second_before_the_start() -> None:
    assert StartFrom.now().resolved(STARTED) == STARTED - timedelta(seconds=1)


def test_pauses_grow_to_half_a_minute_and_no_further_however_long_it_fails() -> None:
    assert [pause_after(failures, 1.0) for failures in (1, 2, 3, 4, 5, 10_000)] == [2, 4, 8, 16, 30, 30]
