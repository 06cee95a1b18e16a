"""A function gets the documents that the real host would give it: texts that look like dates are written anew.

The Cosmos DB extension reads documents with Newtonsoft.Json, which turns such texts into dates
(``DateParseHandling.DateTime``, ``DateTimeZoneHandling.RoundtripKind``), and writes the dates out again
(https://github.com/Azure/azure-functions-host/issues/7114). What counts as a date, and what it becomes, is decided here
as its ``DateTimeParser`` and ``DateTimeUtils`` decide, their oddities included. REWRITING.md describes it to users.
"""

import re
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any

_SECOND = 10_000_000
"""The ticks in a second; moments are counted in ticks from the year 1, as in .NET."""
_MINUTE, _HOUR, _DAY = 60 * _SECOND, 3600 * _SECOND, 86400 * _SECOND
_EPOCH = (date(1970, 1, 1).toordinal() - 1) * _DAY
_END = date.max.toordinal() * _DAY
_SHORTEST = len("/Date(0)/")
_T_AT = len("2024-05-01")

_ISO = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})"
    # Seven digits of a fraction are read, all seven if they are there. What follows them may be taken for an offset's.
    r"(?:\.([0-9]{1,7}+))?"
    # Minutes without a sign and hours are read too, and mean nothing.
    r"(?:(?P<utc>[Zz])|(?:(?P<sign>[+-])(?P<hours>[0-9]{2}))?(?::?(?P<minutes>[0-9]{2})|:)?)"
)
_INT64_TEXT = re.compile(r"-?[0-9]{1,19}")
_OFFSET_HOURS = re.compile(r"[0-9]{2}|-[0-9]")


class UnreadableText(ValueError):
    """The text looks like a date for which .NET has no room: Newtonsoft.Json raises, and nobody can read the page."""


MOST_LEVELS = 62
"""The levels of a document that the host reads: Newtonsoft.Json stops at 64, and a page puts two around a document
(azure-functions-dotnet-worker issue 1226, azure-cosmos-dotnet-v3 pull request 5965)."""


class TooDeep(ValueError):
    """The document has more levels than .NET's readers of JSON take: nobody can read the page."""


def check_levels(document: Any) -> None:
    """Raises TooDeep."""
    level = [document]
    for _ in range(MOST_LEVELS + 1):
        level = [each for each in level if isinstance(each, dict | list)]
        if not level:
            return
        level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
    raise TooDeep


def rewritten(value: Any, zone: tzinfo) -> Any:
    """The JSON ``value`` with each text as the function sees it on a host in ``zone``. Raises UnreadableText."""
    if isinstance(value, str):
        return _rewritten_text(value, zone)
    if isinstance(value, list):
        return [rewritten(each, zone) for each in value]
    if isinstance(value, dict):
        return {name: rewritten(each, zone) for name, each in value.items()}
    return value


def _rewritten_text(text: str, zone: tzinfo) -> str:
    if len(text) < _SHORTEST:
        return text
    if text.startswith("/Date(") and text.endswith(")/"):
        return _rewritten_microsoft(text, zone)
    if text[_T_AT : _T_AT + 1] == "T" and (match := _ISO.fullmatch(text)):
        return _rewritten_iso(text, match, zone)
    return text


def _rewritten_iso(text: str, match: re.Match[str], zone: tzinfo) -> str:
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    fraction = int((match[7] or "0").ljust(7, "0"))
    try:
        days = date(year, month, day).toordinal() - 1
    except ValueError:
        return text
    if hour > 24 or minute > 59 or second > 59 or (hour == 24 and (minute or second or fraction)):
        return text
    ticks = days * _DAY + hour * _HOUR + minute * _MINUTE + second * _SECOND + fraction
    if ticks >= _END:
        raise UnreadableText(text)
    if match["utc"]:
        return _written(ticks) + "Z"
    if match["sign"] is None:
        return _written(ticks)
    offset = int(match["hours"]) * _HOUR + int(match["minutes"] or 0) * _MINUTE
    return _written_local(ticks - offset if match["sign"] == "+" else ticks + offset, zone)


def _rewritten_microsoft(text: str, zone: tzinfo) -> str:
    inner = text[len("/Date(") : -len(")/")]
    # The first character may be the sign of the number.
    sign_at = inner.find("+", 1)
    if sign_at < 0:
        sign_at = inner.find("-", 1)
    number = inner if sign_at < 0 else inner[:sign_at]
    # Of an offset only the two characters of its hours are looked at, and its value is not used.
    if sign_at >= 0 and not _OFFSET_HOURS.fullmatch(inner[sign_at + 1 : sign_at + 3]):
        return text
    if not _INT64_TEXT.fullmatch(number) or _as_int64(int(number)) != int(number):
        return text
    ticks = _as_int64(int(number) * 10_000 + _EPOCH)
    if not 0 <= ticks < _END:
        raise UnreadableText(text)
    return _written(ticks) + "Z" if sign_at < 0 else _written_local(ticks, zone)


def _as_int64(number: int) -> int:
    """What is left of a number in .NET's unchecked arithmetic."""
    return (number + 2**63) % 2**64 - 2**63


def _written(ticks: int) -> str:
    """Without an offset; the fraction loses its last zeros."""
    days, rest = divmod(ticks, _DAY)
    moment = datetime.combine(date.fromordinal(days + 1), datetime.min.time()) + timedelta(
        seconds=rest // _SECOND
    )
    fraction = f".{rest % _SECOND:07d}".rstrip("0") if rest % _SECOND else ""
    return moment.isoformat(timespec="seconds") + fraction


def _written_local(utc_ticks: int, zone: tzinfo) -> str:
    """In the time of ``zone``; a moment before the first date or after the last becomes that date."""
    minutes = _offset_minutes(utc_ticks, zone)
    ticks = min(max(utc_ticks + minutes * _MINUTE, 0), _END - 1)
    return f"{_written(ticks)}{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"


def _offset_minutes(utc_ticks: int, zone: tzinfo) -> int:
    # A day away from both ends of the calendar: Python computes in local time, too.
    seconds = min(max(utc_ticks, _DAY), _END - 2 * _DAY) // _SECOND
    moment = datetime.min.replace(tzinfo=UTC) + timedelta(seconds=seconds)
    offset = moment.astimezone(zone).utcoffset() or timedelta()
    # .NET's time zones have whole minutes, those of the time before time zones too.
    return int(offset.total_seconds() / 60)
