"""A query as values, free of the parser that read it: what is in this tree is what devstack supports."""

from dataclasses import dataclass
from typing import Any

AGGREGATES = frozenset({"COUNT", "SUM", "MIN", "MAX", "AVG"})


@dataclass(frozen=True)
class Constant:
    value: Any


@dataclass(frozen=True)
class Parameter:
    """``name`` without the ``@``."""

    name: str


@dataclass(frozen=True)
class Name:
    """What FROM or JOIN named."""

    name: str


@dataclass(frozen=True)
class Property:
    """``base[key]``; a dot is the same with a constant key."""

    base: "Expression"
    key: "Expression"


@dataclass(frozen=True)
class Unary:
    """``operator``: NOT, -, + or ~."""

    operator: str
    operand: "Expression"


@dataclass(frozen=True)
class Binary:
    """``operator`` as it is written, AND, OR and ?? among them."""

    operator: str
    left: "Expression"
    right: "Expression"


@dataclass(frozen=True)
class In:
    operand: "Expression"
    choices: tuple["Expression", ...]


@dataclass(frozen=True)
class Between:
    operand: "Expression"
    low: "Expression"
    high: "Expression"


@dataclass(frozen=True)
class Like:
    operand: "Expression"
    pattern: "Expression"
    escape: str | None


@dataclass(frozen=True)
class Conditional:
    test: "Expression"
    chosen: "Expression"
    other: "Expression"


@dataclass(frozen=True)
class Call:
    """``function`` in upper case."""

    function: str
    arguments: tuple["Expression", ...]


@dataclass(frozen=True)
class ObjectLiteral:
    members: tuple[tuple[str, "Expression"], ...]


@dataclass(frozen=True)
class ArrayLiteral:
    elements: tuple["Expression", ...]


@dataclass(frozen=True)
class Subquery:
    """``kind``: EXISTS, ARRAY, or VALUE for the one value of a query in parentheses."""

    kind: str
    query: "Query"


Expression = (
    Constant
    | Parameter
    | Name
    | Property
    | Unary
    | Binary
    | In
    | Between
    | Like
    | Conditional
    | Call
    | ObjectLiteral
    | ArrayLiteral
    | Subquery
)


@dataclass(frozen=True)
class Source:
    """``alias`` names ``value``, or with ``iterate`` each of its elements in turn."""

    alias: str
    value: "Expression"
    iterate: bool


@dataclass(frozen=True)
class SortKey:
    value: Expression
    descending: bool


@dataclass(frozen=True)
class Query:
    """``items`` are the selected expressions with their names, None for ``SELECT *``; with ``value`` there is one."""

    items: tuple[tuple[str, Expression], ...] | None
    value: bool = False
    distinct: bool = False
    top: Expression | None = None
    sources: tuple[Source, ...] = ()
    where: Expression | None = None
    group_by: tuple[Expression, ...] = ()
    order_by: tuple[SortKey, ...] = ()
    offset: Expression | None = None
    limit: Expression | None = None

    @property
    def root(self) -> str:
        """The name of the document itself; empty when FROM names something inside it, or there is no FROM."""
        first = self.sources[0] if self.sources else None
        is_document = first is not None and isinstance(first.value, Name) and not first.iterate
        return first.alias if first is not None and is_document else ""


def children(expression: Expression) -> tuple[Expression, ...]:  # noqa: C901, PLR0911 - a case for each kind of node
    """The expressions directly inside, those of a subquery not among them."""
    match expression:
        case Property(base, key):
            return (base, key)
        case Unary(_, operand):
            return (operand,)
        case Binary(_, left, right):
            return (left, right)
        case In(operand, choices):
            return (operand, *choices)
        case Between(operand, low, high):
            return (operand, low, high)
        case Like(operand, pattern, _):
            return (operand, pattern)
        case Conditional(test, chosen, other):
            return (test, chosen, other)
        case Call(_, arguments):
            return arguments
        case ObjectLiteral(members):
            return tuple(value for _, value in members)
        case ArrayLiteral(elements):
            return elements
        case _:
            return ()


def is_aggregate(expression: Expression) -> bool:
    return isinstance(expression, Call) and expression.function in AGGREGATES


def has_aggregate(expression: Expression) -> bool:
    return is_aggregate(expression) or any(has_aggregate(child) for child in children(expression))


def path_of(expression: Expression, root: str) -> tuple[str, ...] | None:
    """The property names from the document down to this expression; None when it is not such a path."""
    match expression:
        case Name(name) if name == root:
            return ()
        case Property(base, Constant(str() as key)):
            above = path_of(base, root)
            return None if above is None else (*above, key)
        case _:
            return None
