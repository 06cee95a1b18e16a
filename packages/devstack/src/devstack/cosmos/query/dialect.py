"""sqlglot bent to the SQL of Cosmos DB: its tokenizer and its grammar of expressions, under our own grammar of SELECT.

The two differ in the clauses (``SELECT VALUE``, ``FROM x IN c.list``, ``TOP @n``) and in the operators ``??`` and ``?
:``. Some of what is overridden here is private to sqlglot: the tests of the parser are what pins it.
"""

from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import exp, parser, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.tokenizer_core import TokenType


class Query(exp.Expression):
    """A SELECT. ``value`` is set for SELECT VALUE, ``top`` is the number of TOP."""

    arg_types: ClassVar[dict[str, bool]] = {
        "expressions": True,
        "value": False,
        "distinct": False,
        "top": False,
        "sources": False,
        "where": False,
        "group": False,
        "order": False,
        "offset": False,
        "limit": False,
    }


class Source(exp.Expression):
    """One member of FROM: ``alias`` names ``this``, or with ``iterate`` its elements one by one."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "alias": False, "iterate": False}


class Conditional(exp.Expression):
    """``this ? true : false``."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "true": True, "false": True}


class CosmosTokenizer(tokens.Tokenizer):
    QUOTES: ClassVar[list[Any]] = ["'", '"']
    IDENTIFIERS: ClassVar[list[Any]] = ["`"]  # there are none; the tokenizer wants one
    STRING_ESCAPES: ClassVar[list[str]] = ["\\"]
    KEYWORDS: ClassVar[dict[str, Any]] = {
        "!=": TokenType.NEQ,
        "<=": TokenType.LTE,
        "<>": TokenType.NEQ,
        ">=": TokenType.GTE,
        "??": TokenType.DQMARK,
        "||": TokenType.DPIPE,
        "AND": TokenType.AND,
        "AS": TokenType.ALIAS,
        "ASC": TokenType.ASC,
        "BETWEEN": TokenType.BETWEEN,
        "DESC": TokenType.DESC,
        "DISTINCT": TokenType.DISTINCT,
        "ESCAPE": TokenType.ESCAPE,
        "EXISTS": TokenType.EXISTS,
        "FALSE": TokenType.FALSE,
        "FROM": TokenType.FROM,
        "GROUP BY": TokenType.GROUP_BY,
        "IN": TokenType.IN,
        "JOIN": TokenType.JOIN,
        "LIKE": TokenType.LIKE,
        "LIMIT": TokenType.LIMIT,
        "NOT": TokenType.NOT,
        "NULL": TokenType.NULL,
        "OFFSET": TokenType.OFFSET,
        "OR": TokenType.OR,
        "ORDER BY": TokenType.ORDER_BY,
        "SELECT": TokenType.SELECT,
        "TRUE": TokenType.TRUE,
        "WHERE": TokenType.WHERE,
    }


class CosmosParser(parser.Parser):
    """Every function stays anonymous: sqlglot knows other databases' arguments for the same names."""

    FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {}
    NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {}
    COLUMN_OPERATORS: ClassVar[dict[Any, Any]] = {TokenType.DOT: None}

    def _parse_select(self, *_args: Any, **_options: Any) -> exp.Expr | None:
        if not self._match(TokenType.SELECT):
            return None
        query = Query(distinct=bool(self._match(TokenType.DISTINCT)))
        if self._is_clause("TOP"):
            self._advance()
            query.set("top", self._parse_primary() or self._parse_placeholder())
        if self._is_clause("VALUE"):
            self._advance()
            query.set("value", True)
        query.set("expressions", self._parse_csv(self._parse_projection))
        if self._match(TokenType.FROM):
            query.set("sources", self._parse_sources())
        if self._match(TokenType.WHERE):
            query.set("where", self._parse_condition())
        if self._match(TokenType.GROUP_BY):
            query.set("group", self._parse_csv(self._parse_disjunction))
        if self._match(TokenType.ORDER_BY):
            query.set("order", self._parse_csv(self._parse_sort_key))
        if self._match(TokenType.OFFSET):
            query.set("offset", self._parse_unary())
        if self._match(TokenType.LIMIT):
            query.set("limit", self._parse_unary())
        return query

    def _parse_condition(self) -> exp.Expr | None:
        condition = self._parse_disjunction()
        if condition is None:
            self.raise_error("A condition is expected")
        return condition

    def _is_clause(self, name: str) -> bool:
        """Whether the word at hand is the keyword and not a property: VALUE c.x, but not value.x."""
        following = self._next.token_type if self._next else None
        ends = (TokenType.DOT, TokenType.COMMA, TokenType.FROM, None)
        return self._curr.text.upper() == name and following not in ends

    def _parse_projection(self) -> exp.Expr | None:
        if self._match(TokenType.STAR):
            return exp.Star()
        value = self._parse_disjunction()
        if self._match(TokenType.ALIAS) or self._is_word():
            return exp.Alias(this=value, alias=self._word())
        return value

    def _parse_sort_key(self) -> exp.Expression:
        value = self._parse_disjunction()
        descending = bool(self._match(TokenType.DESC))
        if not descending:
            self._match(TokenType.ASC)
        return exp.Ordered(this=value, desc=descending)

    def _parse_sources(self) -> list[exp.Expression]:
        sources = [self._parse_source()]
        while self._match(TokenType.JOIN):
            sources.append(self._parse_source())
        return sources

    def _parse_source(self) -> exp.Expression:
        value = self._parse_unary()
        if self._match(TokenType.IN):
            alias = exp.to_identifier(value.name) if isinstance(value, exp.Column) else None
            return Source(this=self._parse_unary(), alias=alias, iterate=True)
        if self._match(TokenType.ALIAS) or self._is_word():
            return Source(this=value, alias=self._word())
        return Source(this=value)

    def _is_word(self) -> bool:
        return self._curr.token_type == TokenType.VAR

    def _word(self) -> exp.Expression:
        if not self._is_word():
            self.raise_error("A name is expected")
        text = self._curr.text
        self._advance()
        return exp.to_identifier(text)

    def _parse_disjunction(self) -> exp.Expr | None:
        value = super()._parse_disjunction()
        if self._match(TokenType.PLACEHOLDER):
            chosen = self._parse_disjunction()
            if not self._match(TokenType.COLON):
                self.raise_error("':' is expected")
            return Conditional(this=value, true=chosen, false=self._parse_disjunction())
        return value


class Cosmos(Dialect):
    """The names of properties and aliases are case-sensitive."""

    class Tokenizer(CosmosTokenizer):
        """sqlglot finds a dialect's classes by their names."""

    class Parser(CosmosParser):
        """As above."""

    UNESCAPED_SEQUENCES = {  # noqa: RUF012 - sqlglot declares it without ClassVar
        "\\n": "\n",
        "\\t": "\t",
        "\\r": "\r",
        "\\b": "\b",
        "\\f": "\f",
        "\\/": "/",
    }
