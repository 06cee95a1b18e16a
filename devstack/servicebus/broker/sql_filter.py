"""SQL filters decide in three values: a comparison with a property that is missing is unknown, and never matches.

The subset: ``= <> != < <= > >=``, ``AND OR NOT``, ``[NOT] IN``, ``[NOT] LIKE ... [ESCAPE]``, ``IS [NOT] NULL``,
``EXISTS (property)``, ``+ - * / %``, brackets, strings, numbers, TRUE and FALSE, ``@parameters``, and properties with
or without ``sys.`` and ``user.``. Anything else raises ValueError that names it. Source: the SQL filter syntax of Azure
Service Bus.
"""

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

SYSTEM_PROPERTIES = {
    "MessageId": "message-id",
    "To": "to",
    "Label": "subject",
    "Subject": "subject",
    "ReplyTo": "reply-to",
    "CorrelationId": "correlation-id",
    "ContentType": "content-type",
    "SessionId": "group-id",
    "ReplyToSessionId": "reply-to-group-id",
}
"""Names in filters, and the AMQP properties that they mean."""

MAX_LENGTH = 1024
"""Characters in a filter. Source: Service Bus quotas."""

MAX_DEPTH = 32
"""Nested brackets and NOTs in a filter. Source: Service Bus quotas allow a recursion depth of 32."""


@dataclass(frozen=True, slots=True)
class Properties:
    """What a filter sees of a message; names in lower case, since filters do not tell case apart."""

    system: Mapping[str, Any]
    user: Mapping[str, Any]


Node = Callable[[Properties], Any]

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>\d+\.\d+(?:[eE][+-]?\d+)?|\d+)
    | (?P<string>'(?:[^']|'')*')
    | (?P<parameter>@\w+)
    | (?P<quoted>\[[^\]]+\]|"[^"]+")
    | (?P<word>[A-Za-z_][\w.\-]*)
    | (?P<operator><>|!=|<=|>=|[=<>+\-*/%(),])
    )""",
    re.VERBOSE,
)
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": operator.mod,
}


def compile_sql(expression: str, parameters: Mapping[str, Any]) -> Callable[[Properties], bool]:
    """A function that tells whether a message matches. Raises ValueError for what is not supported."""
    if len(expression) > MAX_LENGTH:
        raise ValueError(f"a SQL filter has at most {MAX_LENGTH} characters")
    node = _Parser(
        _tokens(expression), {name.lstrip("@").lower(): v for name, v in parameters.items()}
    ).parse()
    return lambda properties: node(properties) is True


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str

    @property
    def keyword(self) -> str:
        return self.text.upper() if self.kind in ("word", "operator") else ""


def _tokens(expression: str) -> list[_Token]:
    tokens, position = [], 0
    text = expression.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            raise ValueError(f"a SQL filter cannot contain {text[position:].strip()[:20]!r}")
        tokens.append(_Token(match.lastgroup, match.group(match.lastgroup)))
        position = match.end()
    return tokens


class _Parser:
    """Recursive descent, one method for each level of precedence."""

    def __init__(self, tokens: list[_Token], parameters: Mapping[str, Any]) -> None:
        self._tokens = tokens
        self._parameters = parameters
        self._position = 0
        self._depth = 0

    def parse(self) -> Node:
        node = self._or()
        if self._position != len(self._tokens):
            raise ValueError(f"a SQL filter cannot go on with {self._tokens[self._position].text!r}")
        return node

    def _peek(self) -> str:
        return self._tokens[self._position].keyword if self._position < len(self._tokens) else ""

    def _accept(self, *keywords: str) -> str:
        if self._peek() in keywords and self._peek():
            self._position += 1
            return self._tokens[self._position - 1].keyword
        return ""

    def _expect(self, keyword: str) -> None:
        if not self._accept(keyword):
            raise ValueError(f"a SQL filter needs {keyword} here")

    def _next(self) -> _Token:
        if self._position >= len(self._tokens):
            raise ValueError("a SQL filter ends too early")
        self._position += 1
        return self._tokens[self._position - 1]

    def _or(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ValueError(f"a SQL filter nests at most {MAX_DEPTH} deep")
        node = self._and()
        while self._accept("OR"):
            node = _either(node, self._and())
        self._depth -= 1
        return node

    def _and(self) -> Node:
        node = self._not()
        while self._accept("AND"):
            node = _both(node, self._not())
        return node

    def _not(self) -> Node:
        negations = 0
        while self._accept("NOT"):
            negations += 1
        node = self._predicate()
        return _negated(node) if negations % 2 else node

    def _predicate(self) -> Node:
        if self._accept("EXISTS"):
            self._expect("(")
            name = self._next()
            self._expect(")")
            return _exists(_property(name))
        left = self._sum()
        if symbol := self._accept(*_COMPARISONS):
            return _compared(left, _COMPARISONS[symbol], self._sum())
        if self._accept("IS"):
            negated = bool(self._accept("NOT"))
            self._expect("NULL")
            return _negated(_is_null(left)) if negated else _is_null(left)
        negated = bool(self._accept("NOT"))
        if self._accept("IN"):
            node = self._in(left)
        elif self._accept("LIKE"):
            node = self._like(left)
        elif negated:
            raise ValueError("a SQL filter needs IN or LIKE after NOT here")
        else:
            return left
        return _negated(node) if negated else node

    def _in(self, left: Node) -> Node:
        self._expect("(")
        options = [self._sum()]
        while self._accept(","):
            options.append(self._sum())
        self._expect(")")
        node = _compared(left, operator.eq, options[0])
        for option in options[1:]:
            node = _either(node, _compared(left, operator.eq, option))
        return node

    def _like(self, left: Node) -> Node:
        pattern = self._sum()
        escape = self._sum() if self._accept("ESCAPE") else None
        return _like(left, pattern, escape)

    def _sum(self) -> Node:
        node = self._product()
        while symbol := self._accept("+", "-"):
            node = _computed(node, _ARITHMETIC[symbol], self._product())
        return node

    def _product(self) -> Node:
        node = self._unary()
        while symbol := self._accept("*", "/", "%"):
            node = _computed(node, _ARITHMETIC[symbol], self._unary())
        return node

    def _unary(self) -> Node:
        sign = 1
        while symbol := self._accept("+", "-"):
            sign = -sign if symbol == "-" else sign
        node = self._primary()
        return node if sign > 0 else _computed(_constant(0), operator.sub, node)

    def _primary(self) -> Node:
        if self._accept("("):
            node = self._or()
            self._expect(")")
            return node
        token = self._next()
        if token.kind == "number":
            return _constant(float(token.text) if "." in token.text else int(token.text))
        if token.kind == "string":
            return _constant(token.text[1:-1].replace("''", "'"))
        if token.kind == "parameter":
            name = token.text[1:].lower()
            if name not in self._parameters:
                raise ValueError(f"a SQL filter names the parameter {token.text}, which has no value")
            return _constant(self._parameters[name])
        if token.keyword in ("TRUE", "FALSE"):
            return _constant(token.keyword == "TRUE")
        if self._peek() == "(":
            raise ValueError(f"a SQL filter cannot call {token.text}")
        return _property(token)


def _constant(value: Any) -> Node:
    return lambda _: value


def _property(token: _Token) -> Node:
    if token.kind not in ("word", "quoted"):
        raise ValueError(f"a SQL filter cannot contain {token.text!r} here")
    name = (token.text[1:-1] if token.kind == "quoted" else token.text).lower()
    scope, _, rest = name.partition(".")
    if token.kind == "word" and scope == "sys":
        if rest not in {known.lower() for known in SYSTEM_PROPERTIES}:
            raise ValueError(f"a SQL filter cannot read sys.{rest}")
        return lambda properties: properties.system.get(rest)
    key = rest if token.kind == "word" and scope == "user" and rest else name
    return lambda properties: properties.user.get(key)


def _exists(node: Node) -> Node:
    return lambda properties: node(properties) is not None


def _is_null(node: Node) -> Node:
    return lambda properties: node(properties) is None


def _negated(node: Node) -> Node:
    def evaluate(properties: Properties) -> Any:
        value = node(properties)
        return None if value is None else value is not True

    return evaluate


def _both(left: Node, right: Node) -> Node:
    def evaluate(properties: Properties) -> Any:
        values = (left(properties), right(properties))
        if any(value is False for value in values):
            return False
        return None if None in values else True

    return evaluate


def _either(left: Node, right: Node) -> Node:
    def evaluate(properties: Properties) -> Any:
        values = (left(properties), right(properties))
        if any(value is True for value in values):
            return True
        return None if None in values else False

    return evaluate


def _compared(left: Node, compare: Callable[[Any, Any], bool], right: Node) -> Node:
    def evaluate(properties: Properties) -> Any:
        first, second = left(properties), right(properties)
        if first is None or second is None or _family(first) is not _family(second):
            return None
        return compare(first, second)

    return evaluate


def _computed(left: Node, compute: Callable[[Any, Any], Any], right: Node) -> Node:
    def evaluate(properties: Properties) -> Any:
        first, second = left(properties), right(properties)
        if first is None or second is None or _family(first) is not _family(second):
            return None
        try:
            return compute(first, second)
        except (ZeroDivisionError, TypeError, OverflowError):
            return None

    return evaluate


def _like(left: Node, pattern: Node, escape: Node | None) -> Node:
    def evaluate(properties: Properties) -> Any:
        value, wanted = left(properties), pattern(properties)
        mark = escape(properties) if escape else None
        if not isinstance(value, str) or not isinstance(wanted, str):
            return None
        return re.fullmatch(_regex(wanted, mark), value, re.DOTALL) is not None

    return evaluate


def _regex(pattern: str, escape: str | None) -> str:
    parts, characters = [], iter(pattern)
    for character in characters:
        if character == escape:
            parts.append(re.escape(next(characters, "")))
        else:
            parts.append({"%": ".*", "_": "."}.get(character) or re.escape(character))
    return "".join(parts)


def _family(value: Any) -> type:
    """Values compare within their family only: numbers, booleans, text, and each other type by itself."""
    if isinstance(value, bool):
        return bool
    if isinstance(value, int | float):
        return float
    return str if isinstance(value, str) else type(value)
