"""An operator gives what the service's type rules say: undefined for operands of the wrong type, never an error."""

import math
import operator
from collections.abc import Callable
from typing import Any

from devstack.cosmos.query.values import both, compare, either, equal, is_number
from devstack.cosmos.storage.epk import UNDEFINED

_MAX_SAFE_BITS = 0xFFFFFFFF


def _ordered(test: Callable[[int], bool]) -> Callable[[Any, Any], Any]:
    def apply(left: Any, right: Any) -> Any:
        order = compare(left, right)
        return UNDEFINED if order is UNDEFINED else test(order)

    return apply


def _arithmetic(calculate: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def apply(left: Any, right: Any) -> Any:
        if not is_number(left) or not is_number(right):
            return UNDEFINED
        try:
            result = calculate(left, right)
        except (ZeroDivisionError, OverflowError):
            return UNDEFINED
        return result if isinstance(result, int) or math.isfinite(result) else UNDEFINED

    return apply


def _bitwise(calculate: Callable[[int, int], int]) -> Callable[[Any, Any], Any]:
    def apply(left: Any, right: Any) -> Any:
        if not is_number(left) or not is_number(right):
            return UNDEFINED
        result = calculate(int(left), int(right)) & _MAX_SAFE_BITS
        return result - (1 << 32) if result >> 31 else result

    return apply


def _not_equal(left: Any, right: Any) -> Any:
    result = equal(left, right)
    return result if result is UNDEFINED else not result


def _divide(left: float, right: float) -> float:
    quotient = left / right
    return int(quotient) if quotient == int(quotient) and isinstance(left, int) else quotient


def _negate(value: Any) -> Any:
    return -value if is_number(value) else UNDEFINED


def _not(value: Any) -> Any:
    return not value if isinstance(value, bool) else UNDEFINED


UNARY: dict[str, Callable[[Any], Any]] = {
    "NOT": _not,
    "-": _negate,
    "~": lambda value: ~int(value) if is_number(value) else UNDEFINED,
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "AND": both,
    "OR": either,
    "=": equal,
    "!=": _not_equal,
    "<": _ordered(lambda order: order < 0),
    "<=": _ordered(lambda order: order <= 0),
    ">": _ordered(lambda order: order > 0),
    ">=": _ordered(lambda order: order >= 0),
    "+": _arithmetic(operator.add),
    "-": _arithmetic(operator.sub),
    "*": _arithmetic(operator.mul),
    "/": _arithmetic(_divide),
    "%": _arithmetic(math.fmod),
    "&": _bitwise(operator.and_),
    "|": _bitwise(operator.or_),
    "^": _bitwise(operator.xor),
    "||": lambda left, right: left + right if isinstance(left, str) and isinstance(right, str) else UNDEFINED,
}
