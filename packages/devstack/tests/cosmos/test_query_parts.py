"""The parts of the query engine by themselves: what is pinned of sqlglot, and narrowing in SQL that loses no match."""

import json
import sqlite3
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devstack.cosmos.query import tree
from devstack.cosmos.query.evaluate import Compiler
from devstack.cosmos.query.parse import parse
from devstack.cosmos.query.pushdown import narrow, sort_columns
from devstack.cosmos.query.text import query_text
from devstack.cosmos.query.values import sort_key
from devstack.cosmos.storage.epk import UNDEFINED

QUERIES = [
    "SELECT * FROM c",
    "SELECT TOP @n c.a, c['b c'] AS d, 1 FROM root c WHERE NOT c.x AND c.y OR c.z ORDER BY c.a DESC, c.b",
    "SELECT DISTINCT VALUE c.value.order FROM c OFFSET @o LIMIT 10",
    "SELECT VALUE COUNT(c.id) FROM c JOIN t IN c.tags JOIN u IN t.list WHERE t.x = u",
    "SELECT c.a ?? c.b, c.a ? 1 : 2, -c.n, ~1, c.x || 'y' FROM c",
    "SELECT VALUE {'a': [c.x, {}], \"b\": null} FROM c WHERE c.x IN (1, 'a', @p) AND c.s LIKE '%!%' ESCAPE '!'",
    "SELECT c.k, SUM(c.n) FROM c GROUP BY c.k",
    "SELECT * FROM c WHERE EXISTS(SELECT VALUE t FROM t IN c.tags) AND c.n BETWEEN 1 AND 2 AND c.x != undefined",
    "SELECT VALUE ARRAY(SELECT t.x FROM t IN c.tags WHERE t.y = (SELECT VALUE 1)) FROM c",
    r"SELECT VALUE 'it\'s \"quoted\" \\ back\n' FROM c",
    "SELECT c.left, c.top, c.in FROM c WHERE left(c.s, 1) = 'a' AND c.null = true",
]


@pytest.mark.parametrize("text", QUERIES)
def test_a_query_written_again_is_the_same_query(text: str) -> None:
    query = parse(text)

    assert parse(query_text(query)) == query


def test_precedence_is_the_services() -> None:
    where = parse("SELECT * FROM c WHERE c.a = 1 OR c.b = 2 AND NOT c.c = 3").where

    assert isinstance(where, tree.Binary)
    assert where.operator == "OR"
    assert isinstance(where.right, tree.Binary)
    assert where.right.operator == "AND"
    assert isinstance(where.right.right, tree.Unary)


@pytest.mark.long
def test_thousands_of_conditions_are_no_problem() -> None:
    for word in ("OR", "AND"):
        condition = f" {word} ".join(f"c.p = {number}" for number in range(1100))
        query = parse(f"SELECT * FROM c WHERE {condition}")
        narrowed = narrow(query.where, "c", {})
        connection = rows([{"p": 7, "q": "b"}, {"p": -1}])
        found = connection.execute(
            f"SELECT number FROM items WHERE {narrowed.sql}", narrowed.arguments
        ).fetchall()
        connection.close()

        assert Compiler({}).predicate(query.where)({"c": {"p": 7, "q": "b"}}) is (word == "OR")
        assert found == ([(1,)] if word == "OR" else [])


def test_keywords_ignore_case_and_names_do_not() -> None:
    assert parse("select value C.Ab from C") == parse("SELECT VALUE C.Ab FROM C")
    assert parse("SELECT VALUE C.ab FROM C") != parse("SELECT VALUE C.Ab FROM C")


SCALARS = (
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([1.5, "", "a", "ab", "1", "{}", "true"])
)
VALUES = SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(st.sampled_from("xy"), SCALARS, max_size=2)
DOCUMENTS = st.dictionaries(st.sampled_from("pq"), VALUES, max_size=2)
PATHS = st.sampled_from(["c.p", "c.q", "c.p.x", "c['q']['y']"])
COMPARISONS = st.builds(
    "{} {} {}".format, PATHS, st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), SCALARS.map(json.dumps)
) | st.builds("{1} {0} {2}".format, st.sampled_from(["=", "<", ">="]), SCALARS.map(json.dumps), PATHS)
TESTS = st.one_of(
    COMPARISONS,
    st.builds("{}({})".format, st.sampled_from(["IS_DEFINED", "NOT IS_DEFINED", "IS_NULL"]), PATHS),
    st.builds("{}({}, 'a')".format, st.sampled_from(["STARTSWITH", "CONTAINS", "NOT CONTAINS"]), PATHS),
    st.builds("{} IN (1, 'a', null)".format, PATHS),
    st.builds("{} NOT IN (1, true)".format, PATHS),
    st.builds("{} BETWEEN 0 AND 'z'".format, PATHS),
)
CONDITIONS = st.recursive(
    TESTS,
    lambda inner: st.builds("({} {} {})".format, inner, st.sampled_from(["AND", "OR"]), inner),
    max_leaves=4,
)


def rows(documents: list[Any]) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE items (number INTEGER PRIMARY KEY, body TEXT)")
    connection.executemany(
        "INSERT INTO items (body) VALUES (?)", [(json.dumps(document),) for document in documents]
    )
    return connection


@given(CONDITIONS, st.lists(DOCUMENTS, min_size=1, max_size=6))
def test_narrowing_in_sql_loses_no_match(condition: str, documents: list[Any]) -> None:
    query = parse(f"SELECT * FROM c WHERE {condition}")
    matches = Compiler({}).predicate(query.where)
    wanted = {index for index, document in enumerate(documents, 1) if matches({"c": document})}
    narrowed = narrow(query.where, "c", {})
    connection = rows(documents)
    found = connection.execute(
        f"SELECT number FROM items WHERE {narrowed.sql}", narrowed.arguments
    ).fetchall()
    connection.close()

    assert wanted <= {number for (number,) in found}
    if narrowed.exact:
        assert wanted == {number for (number,) in found}


@given(st.lists(st.dictionaries(st.just("p"), SCALARS, max_size=1), max_size=8))
def test_sql_and_the_evaluator_order_values_alike(documents: list[Any]) -> None:
    rank, value = sort_columns(("p",))
    connection = rows(documents)
    found = connection.execute(f"SELECT number FROM items ORDER BY {rank}, {value}, number").fetchall()
    connection.close()

    keys = [sort_key(document.get("p", UNDEFINED)) for document in documents]
    assert [number - 1 for (number,) in found] == sorted(range(len(documents)), key=lambda index: keys[index])
