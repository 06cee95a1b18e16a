"""A retry policy runs the same invocation again in the same process; once used up, the failure stands.

https://learn.microsoft.com/azure/azure-functions/functions-bindings-error-pages#retry-policies. Only the
triggers that read a stream, and the timer, have policies: Cosmos DB and timer here.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count
from typing import Any

FOR_EVER = -1
_RANDOMIZATION = 0.2
"""The share by which a growing pause is varied (WebJobs SDK: ``RandomizedExponentialBackoffStrategy``)."""


@dataclass(frozen=True)
class RetryPolicy:
    """``fixed_delay`` has equal ``minimum`` and ``maximum``; both in seconds."""

    max_retry_count: int
    minimum: float
    maximum: float

    @classmethod
    def from_decorator(cls, setting: Mapping[str, Any]) -> "RetryPolicy":
        """Read what ``@app.retry`` holds. Raises ValueError that says what is wrong with it."""
        max_retry_count = _parse_count(setting.get("max_retry_count"))
        strategy = setting.get("strategy")
        if strategy == "fixed_delay":
            delay = _parse_interval(setting, "delay_interval")
            return cls(max_retry_count, delay, delay)
        if strategy == "exponential_backoff":
            minimum = _parse_interval(setting, "minimum_interval")
            maximum = _parse_interval(setting, "maximum_interval")
            if minimum > maximum:
                raise ValueError("minimum_interval is longer than maximum_interval")
            return cls(max_retry_count, minimum, maximum)
        raise ValueError(f"strategy is {strategy!r}; use fixed_delay or exponential_backoff")

    def allows(self, retry: int) -> bool:
        """Whether there is a ``retry``-th retry (the first is 1)."""
        return self.max_retry_count == FOR_EVER or retry <= self.max_retry_count

    def pauses(self, uniform: Callable[[float, float], float] = random.uniform) -> Iterator[float]:
        """Seconds before the first retry, the second, and so on without end."""
        yield self.minimum
        for exponent in count():
            # Past this the pause is at its maximum whatever the minimum is, and the power would grow
            # without bound.
            factor = 2 ** min(exponent, 32) * uniform(1 - _RANDOMIZATION, 1 + _RANDOMIZATION)
            yield min(self.maximum, self.minimum + self.minimum * factor)


def _parse_count(value: Any) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError):
        raise ValueError(f"max_retry_count is {value!r}; use a number, or -1 for ever") from None
    if number < FOR_EVER:
        raise ValueError("max_retry_count is less than -1; use -1 for ever")
    return number


def _parse_interval(setting: Mapping[str, Any], name: str) -> float:
    # The Python worker reads intervals with this format: no fractions, less than a day.
    text = setting.get(name)
    try:
        time = datetime.strptime(str(text), "%H:%M:%S")  # noqa: DTZ007 - a length of time, not a moment
    except ValueError:
        raise ValueError(f'{name} is {text!r}; use "hh:mm:ss", whole seconds, less than a day') from None
    return timedelta(hours=time.hour, minutes=time.minute, seconds=time.second).total_seconds()
