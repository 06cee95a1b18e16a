"""A schedule is understood whole or refused: a timer that fires at another time than in Azure would be
worse than none.

NCRONTAB: ``{second} {minute} {hour} {day} {month} {day of week}``, in UTC; five fields mean second 0. A
field is ``*``, or a list of numbers, names and ranges, each with an optional step. A time span
(``hh:mm:ss``) is an interval.

https://learn.microsoft.com/azure/azure-functions/functions-bindings-timer#ncrontab-expressions
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from devstack.functions.host_json import parse_timespan

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_ITEM = re.compile(r"(?P<first>\*|\w+)(?:-(?P<last>\w+))?(?:/(?P<step>\d+))?")
_YEARS_SEARCHED = 9
"""29 February comes within eight years, also around 2100."""


class UnsupportedSchedule(ValueError):
    """The expression is none, or one that cannot be understood here."""


class Schedule(Protocol):
    def next_after(self, time: datetime) -> datetime:
        """The first occurrence later than ``time``."""


def parse_schedule(expression: str) -> Schedule:
    """Raises UnsupportedSchedule."""
    text = expression.strip()
    fields = text.split()
    if len(fields) == 1 and ":" in text:
        try:
            return Interval(timedelta(seconds=parse_timespan(text, "the schedule")))
        except ValueError as error:
            raise UnsupportedSchedule(str(error)) from error
    if len(fields) == 5:
        fields = ["0", *fields]
    if len(fields) != 6:
        raise UnsupportedSchedule(f'"{expression}" has {len(fields)} fields; an NCRONTAB expression has 6')
    return Crontab(
        _parse_field(fields[0], 0, 59),
        _parse_field(fields[1], 0, 59),
        _parse_field(fields[2], 0, 23),
        _parse_field(fields[3], 1, 31),
        _parse_field(fields[4], 1, 12, _MONTHS),
        # 7 is no Sunday in NCrontab.
        _parse_field(fields[5], 0, 6, _DAYS),
    )


@dataclass(frozen=True)
class Interval:
    length: timedelta

    def next_after(self, time: datetime) -> datetime:
        return time + self.length


@dataclass(frozen=True)
class Crontab:
    seconds: Sequence[int]
    minutes: Sequence[int]
    hours: Sequence[int]
    days: Sequence[int]
    months: Sequence[int]
    weekdays: Sequence[int]

    def next_after(self, time: datetime) -> datetime:
        start = time.replace(microsecond=0) + timedelta(seconds=1)
        day = start
        for _ in range(_YEARS_SEARCHED * 366):
            if self._includes_day(day):
                found = self._first_time_of_day(day if day == start else _midnight(day))
                if found is not None:
                    return found
            day = _midnight(day) + timedelta(days=1)
        raise UnsupportedSchedule("the schedule never occurs")

    def _includes_day(self, day: datetime) -> bool:
        weekday = (day.weekday() + 1) % 7
        return day.month in self.months and day.day in self.days and weekday in self.weekdays

    def _first_time_of_day(self, start: datetime) -> datetime | None:
        for hour in self.hours:
            for minute in self.minutes:
                if (hour, minute) < (start.hour, start.minute):
                    continue
                same_minute = (hour, minute) == (start.hour, start.minute)
                for second in self.seconds:
                    if not same_minute or second >= start.second:
                        return start.replace(hour=hour, minute=minute, second=second)
        return None


def _midnight(day: datetime) -> datetime:
    return day.replace(hour=0, minute=0, second=0)


def _parse_field(text: str, low: int, high: int, names: Sequence[str] = ()) -> list[int]:
    values: set[int] = set()
    for item in text.split(","):
        match = _ITEM.fullmatch(item)
        if match is None:
            raise UnsupportedSchedule(f'"{item}" in a schedule is not understood')
        step = int(match["step"] or 1)
        if match["first"] == "*":
            first, last = low, high
        else:
            first = _number(match["first"], low, names)
            last = _number(match["last"], low, names) if match["last"] else (high if match["step"] else first)
        if step < 1 or not low <= first <= last <= high:
            raise UnsupportedSchedule(f'"{item}" in a schedule is not within {low} to {high}')
        values.update(range(first, last + 1, step))
    return sorted(values)


def _number(text: str, low: int, names: Sequence[str]) -> int:
    if text.isdigit():
        return int(text)
    if text[:3].lower() in names:
        return names.index(text[:3].lower()) + low
    raise UnsupportedSchedule(f'"{text}" in a schedule is not understood')
