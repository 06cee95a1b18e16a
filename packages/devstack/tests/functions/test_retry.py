"""Policies as the decorator gives them: everything is a text."""

from itertools import islice

import pytest

from devstack.functions.retry import FOR_EVER, RetryPolicy


def test_a_fixed_delay_is_always_the_same() -> None:
    policy = RetryPolicy.from_decorator(
        {"strategy": "fixed_delay", "max_retry_count": "2", "delay_interval": "00:01:30"}
    )

    assert list(islice(policy.pauses(), 4)) == [90.0] * 4
    assert [policy.allows(retry) for retry in (1, 2, 3)] == [True, True, False]


def test_a_backoff_doubles_from_the_minimum_to_the_maximum() -> None:
    policy = RetryPolicy.from_decorator(
        {
            "strategy": "exponential_backoff",
            "max_retry_count": "-1",
            "minimum_interval": "00:00:01",
            "maximum_interval": "00:00:10",
        }
    )

    assert policy.max_retry_count == FOR_EVER
    assert policy.allows(10**9)
    # The first pause is the minimum; then the minimum is added 1, 2, 4, ... times.
    assert list(islice(policy.pauses(lambda low, high: 1.0), 6)) == [1.0, 2.0, 3.0, 5.0, 9.0, 10.0]
    assert max(islice(policy.pauses(), 5000)) == 10.0


def test_a_backoff_is_varied_by_a_fifth() -> None:
    policy = RetryPolicy(FOR_EVER, 10.0, 1000.0)

    assert list(islice(policy.pauses(lambda low, high: low), 2)) == [10.0, 18.0]
    assert list(islice(policy.pauses(lambda low, high: high), 2)) == [10.0, 22.0]


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ({"strategy": "linear", "max_retry_count": "1"}, "strategy is 'linear'"),
        (
            {"strategy": "fixed_delay", "max_retry_count": "often", "delay_interval": "00:00:01"},
            "max_retry_count",
        ),
        (
            {"strategy": "fixed_delay", "max_retry_count": "-2", "delay_interval": "00:00:01"},
            "max_retry_count",
        ),
        ({"strategy": "fixed_delay", "max_retry_count": "1"}, "delay_interval is None"),
        (
            {"strategy": "fixed_delay", "max_retry_count": "1", "delay_interval": "00:00:00.5"},
            "whole seconds",
        ),
        (
            {"strategy": "fixed_delay", "max_retry_count": "1", "delay_interval": "24:00:00"},
            "less than a day",
        ),
        (
            {
                "strategy": "exponential_backoff",
                "max_retry_count": "1",
                "minimum_interval": "00:01:00",
                "maximum_interval": "00:00:01",
            },
            "longer than maximum_interval",
        ),
    ],
)
def test_a_policy_that_the_worker_would_not_take_is_refused(setting: dict[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        RetryPolicy.from_decorator(setting)
