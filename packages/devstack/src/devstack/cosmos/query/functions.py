"""The system functions. An argument that is undefined or of the wrong type gives undefined, never an error.

https://learn.microsoft.com/azure/cosmos-db/nosql/query/system-functions
"""

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from devstack.cosmos.query.values import hashable, is_number, same
from devstack.cosmos.storage.epk import UNDEFINED

_MAX_TEXT = 1 << 21


@dataclass(frozen=True)
class Function:
    """``types``: what each argument must be; a missing one at the end is not checked."""

    least: int
    most: int
    types: tuple[type | tuple[type, ...], ...]
    apply: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        for argument, wanted in zip(arguments, self.types, strict=False):
            if not _fits(argument, wanted):
                return UNDEFINED
        return self.apply(*arguments)


_ANY = object
_NUMBER = (int, float)


def _fits(argument: Any, wanted: type | tuple[type, ...]) -> bool:
    if wanted is _ANY:
        return True
    if wanted is _NUMBER:
        return is_number(argument)
    return isinstance(argument, wanted)


def _type_test(test: Callable[[Any], bool]) -> Function:
    return Function(1, 1, (_ANY,), test)


def _text_test(test: Callable[[str, str], bool]) -> Function:
    """Two strings, and whether to ignore their case."""

    def apply(text: str, part: str, ignore_case: bool = False) -> bool:
        return test(text.lower(), part.lower()) if ignore_case else test(text, part)

    return Function(2, 3, (str, str, bool), apply)


def _math(function: Callable[[float], float]) -> Function:
    return Function(1, 1, (_NUMBER,), lambda number: _finite(lambda: function(number)))


def _finite(calculate: Callable[[], float]) -> Any:
    try:
        result = calculate()
    except (ValueError, OverflowError, ZeroDivisionError):
        return UNDEFINED
    return result if isinstance(result, int) or math.isfinite(result) else UNDEFINED


def _round(number: float) -> float:
    """Half away from zero."""
    return number if isinstance(number, int) else math.copysign(math.floor(abs(number) + 0.5), number)


def _substring(text: str, start: float, length: float) -> str:
    first = max(0, int(start))
    return text[first : first + max(0, int(length))]


def _replicate(text: str, times: float) -> Any:
    count = int(times)
    return text * count if count >= 0 and len(text) * count <= _MAX_TEXT else UNDEFINED


def _replace(text: str, old: str, new: str) -> str:
    return text.replace(old, new) if old else text


def _concat(*parts: Any) -> Any:
    return "".join(parts) if all(isinstance(part, str) for part in parts) else UNDEFINED


def _array_concat(*parts: Any) -> Any:
    if not all(isinstance(part, list) for part in parts):
        return UNDEFINED
    return [element for part in parts for element in part]


def _array_contains(array: list[Any], wanted: Any, partial: Any = False) -> Any:
    if wanted is UNDEFINED:
        return UNDEFINED
    if partial is True and isinstance(wanted, dict):
        return any(
            isinstance(element, dict)
            and all(key in element and same(element[key], value) for key, value in wanted.items())
            for element in array
        )
    return any(same(element, wanted) for element in array)


def _array_slice(array: list[Any], start: float, length: float | None = None) -> list[Any]:
    first = int(start) if start >= 0 else max(0, len(array) + int(start))
    return array[first:] if length is None else array[first : first + max(0, int(length))]


def _set_operation(*, keep_common: bool) -> Function:
    def apply(left: list[Any], right: list[Any]) -> list[Any]:
        others = {hashable(element) for element in right}
        chosen = (
            [element for element in left if hashable(element) in others] if keep_common else [*left, *right]
        )
        return list({hashable(element): element for element in chosen}.values())

    return Function(2, 2, (list, list), apply)


def _to_string(value: Any) -> Any:
    if value is UNDEFINED or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _string_to(kind: type | tuple[type, ...]) -> Function:
    def apply(text: str) -> Any:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return UNDEFINED
        return value if _fits(value, kind) else UNDEFINED

    return Function(1, 1, (str,), apply)


def _current_date_time() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f0Z")


FUNCTIONS: dict[str, Function] = {
    "IS_ARRAY": _type_test(lambda value: isinstance(value, list)),
    "IS_BOOL": _type_test(lambda value: isinstance(value, bool)),
    "IS_DEFINED": _type_test(lambda value: value is not UNDEFINED),
    "IS_FINITE_NUMBER": _type_test(is_number),
    "IS_INTEGER": _type_test(lambda value: is_number(value) and value == int(value)),
    "IS_NULL": _type_test(lambda value: value is None),
    "IS_NUMBER": _type_test(is_number),
    "IS_OBJECT": _type_test(lambda value: isinstance(value, dict)),
    "IS_PRIMITIVE": _type_test(lambda value: value is None or isinstance(value, bool | int | float | str)),
    "IS_STRING": _type_test(lambda value: isinstance(value, str)),
    "CONTAINS": _text_test(lambda text, part: part in text),
    "STARTSWITH": _text_test(str.startswith),
    "ENDSWITH": _text_test(str.endswith),
    "STRINGEQUALS": _text_test(str.__eq__),
    "CONCAT": Function(2, 100, (), _concat),
    "INDEX_OF": Function(2, 3, (str, str, _NUMBER), lambda text, part, start=0: text.find(part, int(start))),
    "LEFT": Function(2, 2, (str, _NUMBER), lambda text, count: text[: max(0, int(count))]),
    "RIGHT": Function(2, 2, (str, _NUMBER), lambda text, count: text[-int(count) :] if count >= 1 else ""),
    "LENGTH": Function(1, 1, (str,), len),
    "LOWER": Function(1, 1, (str,), str.lower),
    "UPPER": Function(1, 1, (str,), str.upper),
    "LTRIM": Function(1, 2, (str, str), str.lstrip),
    "RTRIM": Function(1, 2, (str, str), str.rstrip),
    "TRIM": Function(1, 2, (str, str), str.strip),
    "REPLACE": Function(3, 3, (str, str, str), _replace),
    "REPLICATE": Function(2, 2, (str, _NUMBER), _replicate),
    "REVERSE": Function(1, 1, (str,), lambda text: text[::-1]),
    "SUBSTRING": Function(3, 3, (str, _NUMBER, _NUMBER), _substring),
    "TOSTRING": Function(1, 1, (_ANY,), _to_string),
    "STRINGTOARRAY": _string_to(list),
    "STRINGTOBOOLEAN": _string_to(bool),
    "STRINGTONULL": _string_to(type(None)),
    "STRINGTONUMBER": _string_to(_NUMBER),
    "STRINGTOOBJECT": _string_to(dict),
    "ARRAY_CONCAT": Function(2, 100, (), _array_concat),
    "ARRAY_CONTAINS": Function(2, 3, (list,), _array_contains),
    "ARRAY_LENGTH": Function(1, 1, (list,), len),
    "ARRAY_SLICE": Function(2, 3, (list, _NUMBER, _NUMBER), _array_slice),
    "SETINTERSECT": _set_operation(keep_common=True),
    "SETUNION": _set_operation(keep_common=False),
    "IIF": Function(3, 3, (), lambda test, chosen, other: chosen if test is True else other),
    "ABS": _math(abs),
    "CEILING": _math(math.ceil),
    "FLOOR": _math(math.floor),
    "ROUND": _math(_round),
    "TRUNC": _math(math.trunc),
    "SIGN": _math(lambda number: (number > 0) - (number < 0)),
    "SQRT": _math(math.sqrt),
    "SQUARE": _math(lambda number: number * number),
    "EXP": _math(math.exp),
    "LOG": Function(1, 2, (_NUMBER, _NUMBER), lambda number, *base: _finite(lambda: math.log(number, *base))),
    "LOG10": _math(math.log10),
    "POWER": Function(2, 2, (_NUMBER, _NUMBER), lambda a, b: _finite(lambda: float(a) ** float(b))),
    "PI": Function(0, 0, (), lambda: math.pi),
    "GETCURRENTTIMESTAMP": Function(0, 0, (), lambda: int(time.time() * 1000)),
    "GETCURRENTDATETIME": Function(0, 0, (), _current_date_time),
}
