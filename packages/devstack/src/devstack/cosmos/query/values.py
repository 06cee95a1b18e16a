"""The service's rules for values: six types in a fixed order, and ``undefined`` for what is not there.

https://learn.microsoft.com/azure/cosmos-db/nosql/query/equality-comparison-operators: an operator that is given
undefined, or types that do not go together, gives undefined, which no WHERE lets pass.
"""

from typing import Any

from devstack.cosmos.storage.epk import UNDEFINED, Undefined

_ORDER = {
    Undefined: 0,
    type(None): 1,
    bool: 2,
    int: 4,
    float: 4,
    str: 5,
    list: 6,
    dict: 7,
}


def rank(value: Any) -> int:
    """The place of the value's type in ORDER BY."""
    return _ORDER[type(value)]


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def equal(left: Any, right: Any) -> Any:
    if left is UNDEFINED or right is UNDEFINED:
        return UNDEFINED
    return same(left, right)


def same(left: Any, right: Any) -> bool:
    """Equality in depth, in which true is not 1."""
    if rank(left) != rank(right):
        return False
    if isinstance(left, list):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    return bool(left == right)


def compare(left: Any, right: Any) -> Any:
    """Negative, zero or positive; undefined for types that have no order between them."""
    kind = rank(left)
    if kind != rank(right) or kind in (0, 6, 7):
        return UNDEFINED
    if kind == 1:
        return 0
    return (left > right) - (left < right)


def sort_key(value: Any) -> tuple[int, Any]:
    """Orders values of all types: undefined, null, false, true, numbers, strings, arrays, objects."""
    kind = rank(value)
    if kind in (0, 1):
        return (kind, 0)
    return (kind, repr(value)) if kind in (6, 7) else (kind, value)


def both(left: Any, right: Any) -> Any:
    """AND in three values: false wins over undefined."""
    if left is False or right is False:
        return False
    return True if left is True and right is True else UNDEFINED


def either(left: Any, right: Any) -> Any:
    """OR in three values: true wins over undefined."""
    if left is True or right is True:
        return True
    return False if left is False and right is False else UNDEFINED


def hashable(value: Any) -> Any:
    """A stand-in that is equal exactly for values that are the same."""
    if isinstance(value, dict):
        return ("object", frozenset((key, hashable(member)) for key, member in value.items()))
    if isinstance(value, list):
        return ("array", tuple(hashable(element) for element in value))
    return (rank(value), value)
