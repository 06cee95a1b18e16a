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

from devstack.servicebus.broker.sql_nodes import (
    Node,
    Properties,
    both,
    compared,
    computed,
    constant,
    either,
    exists,
    is_null,
    like,
    negated,
)

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


_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>\d+\.\d+(?:[eE][+-]?\d+)?|\d+)
    | (?P<string>'(?:[^']|'')*')
    | (?P<parameter>@\w+)
    | (?P<quoted>\[[^\]]+\]|"[^"]+")
    | (?P<word>[A-Za-z_][\w.\-]*)
    | (?P<operator><>|!=|<=|>=|[=<>+\-*/%(),;])
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
    """A function that returns whether a message matches. Raises ValueError for what is not supported."""
    if len(expression) > MAX_LENGTH:
        raise ValueError(f"a SQL filter has at most {MAX_LENGTH} characters")
    node = SqlParser(tokens(expression), parameters).parse()
    return lambda properties: node(properties) is True


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    text: str

    @property
    def keyword(self) -> str:
        return self.text.upper() if self.kind in ("word", "operator") else ""


def tokens(expression: str) -> list[Token]:
    found, position = [], 0
    text = expression.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            raise ValueError(f"a SQL filter cannot contain {text[position:].strip()[:20]!r}")
        found.append(Token(match.lastgroup, match.group(match.lastgroup)))
        position = match.end()
    return found


class SqlParser:
    """Recursive descent, one method for each level of precedence."""

    def __init__(self, tokens: list[Token], parameters: Mapping[str, Any]) -> None:
        self._tokens = tokens
        self._parameters = {name.lstrip("@").lower(): value for name, value in parameters.items()}
        self._position = 0
        self._depth = 0

    def parse(self) -> Node:
        node = self.expression()
        if self._position != len(self._tokens):
            raise ValueError(f"a SQL filter cannot go on with {self._tokens[self._position].text!r}")
        return node

    @property
    def more(self) -> bool:
        """Whether anything is left."""
        return self._position < len(self._tokens)

    @property
    def peek(self) -> str:
        """The next keyword or operator; empty when something else is next, or nothing."""
        return self._tokens[self._position].keyword if self._position < len(self._tokens) else ""

    def accept(self, *keywords: str) -> str:
        if self.peek in keywords and self.peek:
            self._position += 1
            return self._tokens[self._position - 1].keyword
        return ""

    def expect(self, keyword: str) -> None:
        if not self.accept(keyword):
            raise ValueError(f"a SQL filter needs {keyword} here")

    def next(self) -> Token:
        if self._position >= len(self._tokens):
            raise ValueError("a SQL filter ends too early")
        self._position += 1
        return self._tokens[self._position - 1]

    def expression(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ValueError(f"a SQL filter nests at most {MAX_DEPTH} deep")
        node = self._and()
        while self.accept("OR"):
            node = either(node, self._and())
        self._depth -= 1
        return node

    def _and(self) -> Node:
        node = self._not()
        while self.accept("AND"):
            node = both(node, self._not())
        return node

    def _not(self) -> Node:
        negations = 0
        while self.accept("NOT"):
            negations += 1
        node = self._predicate()
        return negated(node) if negations % 2 else node

    def _predicate(self) -> Node:
        if self.accept("EXISTS"):
            self.expect("(")
            name = self.next()
            self.expect(")")
            return exists(_property(name))
        left = self._sum()
        if symbol := self.accept(*_COMPARISONS):
            return compared(left, _COMPARISONS[symbol], self._sum())
        if self.accept("IS"):
            is_not = bool(self.accept("NOT"))
            self.expect("NULL")
            return negated(is_null(left)) if is_not else is_null(left)
        is_not = bool(self.accept("NOT"))
        if self.accept("IN"):
            node = self._in(left)
        elif self.accept("LIKE"):
            node = self._like(left)
        elif is_not:
            raise ValueError("a SQL filter needs IN or LIKE after NOT here")
        else:
            return left
        return negated(node) if is_not else node

    def _in(self, left: Node) -> Node:
        self.expect("(")
        options = [self._sum()]
        while self.accept(","):
            options.append(self._sum())
        self.expect(")")
        node = compared(left, operator.eq, options[0])
        for option in options[1:]:
            node = either(node, compared(left, operator.eq, option))
        return node

    def _like(self, left: Node) -> Node:
        pattern = self._sum()
        escape = self._sum() if self.accept("ESCAPE") else None
        return like(left, pattern, escape)

    def _sum(self) -> Node:
        node = self._product()
        while symbol := self.accept("+", "-"):
            node = computed(node, _ARITHMETIC[symbol], self._product())
        return node

    def _product(self) -> Node:
        node = self._unary()
        while symbol := self.accept("*", "/", "%"):
            node = computed(node, _ARITHMETIC[symbol], self._unary())
        return node

    def _unary(self) -> Node:
        sign = 1
        while symbol := self.accept("+", "-"):
            sign = -sign if symbol == "-" else sign
        node = self._primary()
        return node if sign > 0 else computed(constant(0), operator.sub, node)

    def _primary(self) -> Node:
        if self.accept("("):
            node = self.expression()
            self.expect(")")
            return node
        token = self.next()
        if token.kind == "number":
            return constant(float(token.text) if "." in token.text else int(token.text))
        if token.kind == "string":
            return constant(token.text[1:-1].replace("''", "'"))
        if token.kind == "parameter":
            name = token.text[1:].lower()
            if name not in self._parameters:
                raise ValueError(f"a SQL filter names the parameter {token.text}, which has no value")
            return constant(self._parameters[name])
        if token.keyword in ("TRUE", "FALSE"):
            return constant(token.keyword == "TRUE")
        if self.peek == "(":
            raise ValueError(f"a SQL filter cannot call {token.text}")
        return _property(token)


def property_name(token: Token) -> tuple[str, str]:
    """The scope, ``sys`` or ``user``, and the name that a token means."""
    if token.kind not in ("word", "quoted"):
        raise ValueError(f"a SQL filter cannot contain {token.text!r} here")
    name = token.text[1:-1] if token.kind == "quoted" else token.text
    scope, _, rest = name.partition(".")
    if token.kind == "word" and rest and scope.lower() in ("sys", "user"):
        return scope.lower(), rest
    return "user", name


def _property(token: Token) -> Node:
    scope, spelled = property_name(token)
    name = spelled.lower()
    if scope == "user":
        return lambda properties: properties.user.get(name)
    if name not in {known.lower() for known in SYSTEM_PROPERTIES}:
        raise ValueError(f"a SQL filter cannot read sys.{name}")
    return lambda properties: properties.system.get(name)
