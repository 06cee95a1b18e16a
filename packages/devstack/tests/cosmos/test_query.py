"""Queries through the SDK: what they give, over one partition key and over four physical partitions alike."""

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from azure.cosmos import ContainerProxy, CosmosClient, PartitionKey, exceptions
from azure.cosmos.aio import ContainerProxy as AsyncContainer
from azure.cosmos.aio import DatabaseProxy as AsyncDatabase

from cosmos.raw import KEY, Raw, Reply, all_of, items_path
from devstack.testing import Service

pytestmark = pytest.mark.long  # tests/contract goes through the same calls, quickly

DOCUMENTS: list[dict[str, Any]] = [
    {"id": "1", "pk": "a", "n": 3, "s": "pear", "tags": ["x", "y"], "in": {"deep": 1}, "flag": True},
    {"id": "2", "pk": "b", "n": 1, "s": "Apple", "tags": [], "in": {"deep": 2}, "flag": False},
    {"id": "3", "pk": "c", "n": 2.5, "s": "fig", "tags": ["y"], "flag": None},
    {"id": "4", "pk": "d", "n": None, "s": "apple pie", "tags": "y"},
    {"id": "5", "pk": "e", "n": "3", "s": "100%"},
    {"id": "6", "pk": "f", "s": "", "in": [10, 20], "list": [{"deep": "x", "pk": "other"}]},
]


@pytest.fixture(scope="module")
def fruit(faulty_server: Service) -> Iterator[ContainerProxy]:
    """The documents over four physical partitions, made and read with the synchronous SDK."""
    with CosmosClient(faulty_server.address, KEY) as client:
        database = client.create_database(f"db-{uuid.uuid4()}")
        container = database.create_container("fruit", PartitionKey("/pk"))
        for document in DOCUMENTS:
            container.create_item(document)
        yield container


def ask(container: ContainerProxy, query: str, **values: Any) -> list[Any]:
    parameters: list[dict[str, object]] = [
        {"name": f"@{name}", "value": value} for name, value in values.items()
    ]
    return list(container.query_items(query, parameters=parameters, enable_cross_partition_query=True))


def ids(container: ContainerProxy, condition: str, **values: Any) -> str:
    return "".join(sorted(ask(container, f"SELECT VALUE c.id FROM c WHERE {condition}", **values)))


CONDITIONS: list[tuple[str, str]] = [
    ("c.n = 3", "1"),
    ("c.n != 3", "2345"),
    ("NOT (c.n = 3)", "2345"),
    ("c.n > 1", "13"),
    ("c.n >= 1 AND c.n < 3", "23"),
    ("1 < c.n", "13"),
    ("c.n = null", "4"),
    ("c.n != null", "1235"),
    ("c.flag", "1"),
    ("c.flag = false", "2"),
    ("NOT c.flag", "2"),
    ("c.s >= 'a'", "134"),
    ("c.n IN (1, 2.5, '3')", "235"),
    ("c.n NOT IN (1)", "1345"),
    ("c.n BETWEEN 1 AND 2.5", "23"),
    ("c.s LIKE '%pp%'", "24"),
    ("c.s LIKE 'f_g'", "3"),
    ("c.s LIKE '100!%' ESCAPE '!'", "5"),
    ("c.s LIKE '[fp]%'", "13"),
    ("c.s NOT LIKE '%p%'", "356"),
    ("c.in.deep = 1", "1"),
    ("c['in']['deep'] > 1", "2"),
    ("c.in[1] = 20", "6"),
    ("c.tags[0] = 'x'", "1"),
    ("IS_DEFINED(c.n)", "12345"),
    ("NOT IS_DEFINED(c.n)", "6"),
    ("IS_NULL(c.flag)", "3"),
    ("IS_NUMBER(c.n)", "123"),
    ("IS_STRING(c.tags)", "4"),
    ("IS_ARRAY(c.in) OR IS_OBJECT(c.in)", "126"),
    ("IS_BOOL(c.flag)", "12"),
    ("STARTSWITH(c.s, 'app')", "4"),
    ("STARTSWITH(c.s, 'app', true)", "24"),
    ("ENDSWITH(c.s, 'g')", "3"),
    ("CONTAINS(c.s, 'pp')", "24"),
    ("ARRAY_CONTAINS(c.tags, 'y')", "13"),
    ("ARRAY_LENGTH(c.tags) = 2", "1"),
    ("LENGTH(c.s) = 0", "6"),
    ("LOWER(c.s) = 'apple'", "2"),
    ("c.n + 1 = 2", "2"),
    ("c.n * 2 > 5.5", "1"),
    ("c.n % 2 = 1", "12"),
    ("-c.n < -2", "13"),
    ("c.s || '!' = 'fig!'", "3"),
    ("(c.missing ?? 'none') = 'none'", "123456"),
    ("(c.flag ? c.n : 0) = 3", "1"),
    ("EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t = 'x')", "1"),
    ("c.missing = 1 OR c.n = 1", "2"),
    ("c.missing = 1 AND c.n = 1", ""),
    ("NOT (c.missing = 1)", ""),
    ("c.missing != 1", ""),
    ("c.n < 'z'", "5"),
    ("c.in = {'deep': 2}", "2"),
    ("c.tags = ['y']", "3"),
    ("c._ts > 0 AND c.id = '4'", "4"),
    ("true", "123456"),
    ("c.n", ""),
    ("IIF(c.flag, 'yes', 'no') = 'yes'", "1"),
    ("c.s = 'it\\'s' OR c.s = \"fig\"", "3"),
]


def test_conditions(fruit: ContainerProxy) -> None:
    for condition, expected in CONDITIONS:
        assert ids(fruit, condition) == expected, condition


def test_parameters_of_every_type(fruit: ContainerProxy) -> None:
    assert ids(fruit, "c.n = @n", n=3) == "1"
    assert ids(fruit, "c.n = @n", n=None) == "4"
    assert ids(fruit, "c.flag = @flag", flag=False) == "2"
    assert ids(fruit, "c.in = @object", object={"deep": 2}) == "2"
    assert ids(fruit, "ARRAY_CONTAINS(@wanted, c.id)", wanted=["2", "5"]) == "25"
    assert ids(fruit, "c.s = @text", text="' OR true --") == ""
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        ids(fruit, "c.n = @missing")
    assert refused.value.status_code == 400


RESULTS: list[tuple[str, list[Any]]] = [
    ("SELECT c.id, c.n AS number FROM c WHERE c.id = '1'", [{"id": "1", "number": 3}]),
    ("SELECT c.id, c.missing FROM c WHERE c.id = '1'", [{"id": "1"}]),
    ("SELECT c.n + 1, c.s FROM c WHERE c.id = '1'", [{"$1": 4, "s": "pear"}]),
    ("SELECT VALUE {'i': c.id, all: [c.n, c.missing]} FROM c WHERE c.id = '1'", [{"i": "1", "all": [3]}]),
    ("SELECT VALUE c.missing FROM c", []),
    ("SELECT r.id FROM root r WHERE r.id = '2'", [{"id": "2"}]),
    ("SELECT VALUE t FROM c JOIN t IN c.tags WHERE c.id = '1'", ["x", "y"]),
    ("SELECT c.id, t FROM c JOIN t IN c.tags WHERE t = 'x'", [{"id": "1", "t": "x"}]),
    ("SELECT VALUE t FROM t IN c.tags WHERE t = 'x'", ["x"]),
    ("SELECT VALUE d FROM c.in.deep d", [1, 2]),
    ("SELECT VALUE d.deep FROM d IN c.list WHERE d.deep = 'x' AND d.pk = 'other'", ["x"]),
    ("SELECT VALUE COUNT(1) FROM t IN c.tags", [3]),
    ("SELECT DISTINCT VALUE t FROM t IN c.tags", ["x", "y"]),
    ("SELECT VALUE ARRAY(SELECT VALUE UPPER(t) FROM t IN c.tags) FROM c WHERE c.id = '1'", [["X", "Y"]]),
    ("SELECT VALUE COUNT(1) FROM c", [6]),
    ("SELECT VALUE COUNT(c.n) FROM c", [5]),
    ("SELECT VALUE SUM(c.n) FROM c WHERE IS_NUMBER(c.n)", [6.5]),
    ("SELECT VALUE AVG(c.in.deep) FROM c", [1.5]),
    ("SELECT VALUE MIN(c.n) FROM c WHERE IS_NUMBER(c.n)", [1]),
    ("SELECT VALUE MAX(c.s) FROM c", ["pear"]),
    ("SELECT VALUE c.id FROM c WHERE IS_NUMBER(c.n) ORDER BY c.n", ["2", "3", "1"]),
    ("SELECT VALUE c.id FROM c WHERE IS_NUMBER(c.n) ORDER BY c.n DESC", ["1", "3", "2"]),
    ("SELECT VALUE c.s FROM c ORDER BY c.s", ["", "100%", "Apple", "apple pie", "fig", "pear"]),
    ("SELECT TOP 2 VALUE c.id FROM c ORDER BY c.id DESC", ["6", "5"]),
    ("SELECT TOP 1 [c.id] FROM c ORDER BY c.id", [{"$1": ["1"]}]),
    (
        "SELECT DISTINCT VALUE c.flag FROM c WHERE IS_NULL(c.flag) = false ORDER BY c.flag OFFSET 1 LIMIT 1",
        [True],
    ),
    ("SELECT VALUE c.id FROM c ORDER BY c.id OFFSET 2 LIMIT 3", ["3", "4", "5"]),
    ("SELECT DISTINCT VALUE IS_DEFINED(c.in) FROM c", [True, False]),
    (
        "SELECT DISTINCT c.flag FROM c WHERE IS_NUMBER(c.n)",
        [{"flag": True}, {"flag": False}, {"flag": None}],
    ),
    ("SELECT DISTINCT * FROM c WHERE c.n = 1 AND c.pk = 'none'", []),
]


def test_results(fruit: ContainerProxy) -> None:
    for query, expected in RESULTS:
        found = ask(fruit, query)

        if "ORDER BY" in query:
            assert found == expected, query
        else:
            assert sorted(found, key=repr) == sorted(expected, key=repr), query


async def test_types_come_in_the_services_order(container: AsyncContainer) -> None:
    values: list[Any] = ["b", 2, None, True, "a", False, 1, -1.5]
    for index, value in enumerate(values):
        await container.create_item({"id": str(index), "pk": "a", "v": value})
    await container.create_item({"id": "undefined", "pk": "a"})
    query = "SELECT c.v FROM c ORDER BY c.v"

    up = await all_of(container.query_items(query, partition_key="a"))
    down = await all_of(container.query_items(f"{query} DESC", partition_key="a"))

    ordered = [None, False, True, -1.5, 1, 2, "a", "b"]
    assert up == [{}, *({"v": value} for value in ordered)]
    assert down == up[::-1]


@pytest.mark.parametrize("query", ["SELECT VALUE c.n FROM c", "SELECT VALUE c.n FROM c ORDER BY c.n DESC"])
@pytest.mark.parametrize("key", [pytest.param("a", marks=pytest.mark.long), None])
async def test_pages_neither_skip_nor_repeat(wide: AsyncContainer, query: str, key: str | None) -> None:
    for number in range(13):
        await wide.create_item({"id": str(number), "pk": key or f"key-{number}", "n": number % 7})

    options: dict[str, Any] = {"partition_key": key} if key else {}
    pages = wide.query_items(query, max_item_count=4, **options).by_page()
    lengths, found = [], []
    async for page in pages:
        part = await all_of(page)
        lengths.append(len(part))
        found += part

    assert sorted(found) == sorted(number % 7 for number in range(13))
    if "ORDER" in query:
        assert found == sorted(found, reverse=True)
    if key:
        assert lengths == [4, 4, 4, 1]


@pytest.mark.parametrize("keys", [20, 1])
async def test_each_physical_partition_has_a_page_an_empty_one_too(
    wide: AsyncContainer, faulty_raw: Raw, keys: int
) -> None:
    """As reported of the service: https://github.com/Azure/azure-cosmos-dotnet-v2/issues/692."""
    for number in range(keys):
        await wide.create_item({"id": str(number), "pk": f"key-{number}"})
    headers = {
        "x-ms-documentdb-isquery": "True",
        "Content-Type": "application/query+json",
        "x-ms-documentdb-query-enablecrosspartition": "True",
    }

    lengths: list[int] = []
    token: str | None = None
    while token is not None or not lengths:
        reply = await faulty_raw.send(
            "POST",
            items_path(wide),
            headers=headers if token is None else {**headers, "x-ms-continuation": token},
            body={"query": "SELECT * FROM c WHERE c.id >= '0'"},
        )
        lengths.append(len(reply.body["Documents"]))
        token = reply.headers.get("x-ms-continuation")

    assert (len(lengths), sum(lengths)) == (4, keys)
    assert lengths.count(0) == max(4 - keys, 0), "twenty keys leave no quarter of the hashes empty"
    assert len(await all_of(wide.query_items("SELECT * FROM c"))) == keys


async def test_changes_between_two_pages_do_no_harm(container: AsyncContainer) -> None:
    for number in range(10):
        await container.create_item({"id": str(number), "pk": "a", "n": number})
    query = "SELECT VALUE c.n FROM c ORDER BY c.n"
    pages = container.query_items(query, partition_key="a", max_item_count=4).by_page()

    first = await all_of(await anext(pages))
    await container.delete_item("3", "a")
    await container.create_item({"id": "new", "pk": "a", "n": 0.5})
    second = await all_of(await anext(pages))

    assert (first, second) == ([0, 1, 2, 3], [4, 5, 6, 7])


async def test_joined_rows_are_paged_too(container: AsyncContainer) -> None:
    for number in range(3):
        await container.create_item({"id": str(number), "pk": "a", "tags": ["x", "y", "z"]})

    query = "SELECT c.id, t FROM c JOIN t IN c.tags"
    pages = container.query_items(query, partition_key="a", max_item_count=2).by_page()
    found = [[(row["id"], row["t"]) async for row in page] async for page in pages]

    assert [row for page in found for row in page] == [(str(n), t) for n in range(3) for t in "xyz"]
    assert max(len(page) for page in found) == 2


async def test_a_foreign_or_forged_continuation_is_400(container: AsyncContainer, raw: Raw) -> None:
    for number in range(3):
        await container.create_item({"id": str(number), "pk": "a"})
    headers = {
        "x-ms-documentdb-isquery": "True",
        "Content-Type": "application/query+json",
        "x-ms-documentdb-partitionkey": '["a"]',
        "x-ms-max-item-count": "1",
    }
    query = {"query": "SELECT * FROM c"}
    page = await raw.send("POST", items_path(container), headers=headers, body=query)
    token = page.headers["x-ms-continuation"]

    other_query = {"query": "SELECT c.id FROM c"}
    for body, used in ((other_query, token), (query, "x"), (query, token[:-8]), (query, "e30=")):
        reply = await raw.send(
            "POST", items_path(container), headers={**headers, "x-ms-continuation": used}, body=body
        )
        assert (reply.status, reply.body["code"]) == (400, "BadRequest")
    good = await raw.send(
        "POST", items_path(container), headers={**headers, "x-ms-continuation": token}, body=query
    )
    assert [item["id"] for item in good.body["Documents"]] == ["1"]


async def test_groups_in_one_partition_key(container: AsyncContainer) -> None:
    for number in range(6):
        await container.create_item(
            {"id": str(number), "pk": "a", "kind": "even" if number % 2 == 0 else "odd", "n": number}
        )

    query = "SELECT c.kind, COUNT(1) AS count, SUM(c.n) AS total FROM c GROUP BY c.kind"
    found = await all_of(container.query_items(query, partition_key="a"))

    assert sorted(found, key=lambda row: str(row["kind"])) == [
        {"kind": "even", "count": 3, "total": 6},
        {"kind": "odd", "count": 3, "total": 9},
    ]


DOTNET_FEATURES = (
    "Aggregate, CompositeAggregate, Distinct, GroupBy, MultipleOrderBy, MultipleAggregates, NonValueAggregate, OrderBy,"
    " OffsetAndLimit, Top, DCount, NonStreamingOrderBy"
)
"""What Microsoft.Azure.Cosmos for .NET says of itself; @azure/cosmos for JavaScript says much the same."""


async def plan_of(raw: Raw, container: AsyncContainer, query: str, features: str) -> Reply:
    headers = {
        "x-ms-cosmos-is-query-plan-request": "True",
        "x-ms-cosmos-supported-query-features": features,
        "Content-Type": "application/query+json",
    }
    return await raw.send("POST", items_path(container), headers=headers, body={"query": query})


async def test_a_client_that_merges_groups_gets_the_plan_for_them(
    wide: AsyncContainer, faulty_raw: Raw
) -> None:
    """.NET asks for the plan of GROUP BY inside one partition key too, and reads groups in this form alone."""
    for number, (kind, n) in enumerate([("even", 2), ("odd", 1), ("even", 4), ("none", None)]):
        more = {} if n is None else {"n": n}
        await wide.create_item({"id": str(number), "pk": "a", "kind": kind, **more})
    await wide.create_item({"id": "5", "pk": "b", "kind": "even", "n": 6})
    query = (
        "SELECT TOP 2 c.kind, COUNT(1) AS number, AVG(c.n) AS mean, MAX(c.n), UPPER(c.kind) AS loud"
        " FROM c WHERE c.pk = 'a' GROUP BY c.kind, UPPER(c.kind)"
    )

    plan = await plan_of(faulty_raw, wide, query, DOTNET_FEATURES)

    info = plan.body["queryInfo"]
    assert plan.status == 200
    assert info["groupByExpressions"] == ['c["kind"]', 'UPPER(c["kind"])']
    assert info["groupByAliases"] == ["kind", "number", "mean", "$1", "loud"]
    assert info["groupByAliasToAggregateType"] == {
        "kind": None,
        "number": "Count",
        "mean": "Average",
        "$1": "Max",
        "loud": None,
    }
    assert (info["aggregates"], info["hasSelectValue"], info["top"]) == ([], False, 2)
    answer = await faulty_raw.send(
        "POST",
        items_path(wide),
        headers={
            "x-ms-documentdb-isquery": "True",
            "Content-Type": "application/query+json",
            "x-ms-documentdb-partitionkey": '["a"]',
        },
        body={"query": info["rewrittenQuery"]},
    )
    assert sorted(answer.body["Documents"], key=lambda group: str(group["groupByItems"])) == [
        {
            "groupByItems": [{"item": "even"}, {"item": "EVEN"}],
            "payload": {
                "kind": "even",
                "number": {"item": 2},
                "mean": {"item": {"sum": 6, "count": 2}},
                "$1": {"item": 4, "item2": {"max": 4, "count": 2}},
                "loud": "EVEN",
            },
        },
        {
            "groupByItems": [{"item": "none"}, {"item": "NONE"}],
            "payload": {
                "kind": "none",
                "number": {"item": 1},
                "mean": {"item": {"sum": 0, "count": 0}},
                "$1": {"item2": {"count": 0}},
                "loud": "NONE",
            },
        },
        {
            "groupByItems": [{"item": "odd"}, {"item": "ODD"}],
            "payload": {
                "kind": "odd",
                "number": {"item": 1},
                "mean": {"item": {"sum": 1, "count": 1}},
                "$1": {"item": 1, "item2": {"max": 1, "count": 1}},
                "loud": "ODD",
            },
        },
    ]


@pytest.mark.parametrize(
    ("query", "payload", "aggregates"),
    [
        (
            "SELECT VALUE c.pk FROM c GROUP BY c.pk",
            '{"item": c["pk"]}] AS groupByItems, c["pk"] AS payload',
            [],
        ),
        ("SELECT VALUE COUNT(1) FROM c GROUP BY c.pk", '[{"item": COUNT(1)}] AS payload', ["Count"]),
    ],
)
async def test_groups_of_one_value_have_no_names(
    wide: AsyncContainer, faulty_raw: Raw, query: str, payload: str, aggregates: list[str]
) -> None:
    info = (await plan_of(faulty_raw, wide, query, DOTNET_FEATURES)).body["queryInfo"]

    assert payload in info["rewrittenQuery"]
    assert (info["aggregates"], info["hasSelectValue"]) == (aggregates, True)
    assert (info["groupByAliases"], info["groupByAliasToAggregateType"]) == ([], {})


async def test_a_client_that_cannot_merge_groups_is_refused(wide: AsyncContainer, faulty_raw: Raw) -> None:
    query = "SELECT c.kind, COUNT(1) AS number FROM c GROUP BY c.kind"

    refused = await plan_of(faulty_raw, wide, query, DOTNET_FEATURES.replace("GroupBy, ", ""))
    with pytest.raises(
        exceptions.CosmosHttpResponseError, match="GroupBy, which the calling client does not"
    ):
        await all_of(wide.query_items(query))

    assert refused.status == 400
    assert "Query contained GroupBy, which the calling client does not support." in refused.body["message"]


async def test_a_minimum_has_the_number_of_its_values(wide: AsyncContainer, faulty_raw: Raw) -> None:
    """.NET takes a partition's missing minimum for one that is undefined, unless the number is there."""
    plan = await plan_of(faulty_raw, wide, "SELECT VALUE MIN(c.n) FROM c", DOTNET_FEATURES)

    assert plan.body["queryInfo"]["rewrittenQuery"] == (
        'SELECT VALUE [{"item": MIN(c["n"]), "item2": {"min": MIN(c["n"]), "count": COUNT(c["n"])}}] FROM c AS c'
    )


async def test_an_order_by_a_property_needs_its_index(database: AsyncDatabase) -> None:
    policy: Any = {
        "includedPaths": [{"path": "/a/?"}, {"path": "/b/*"}],
        "excludedPaths": [{"path": "/*"}, {"path": "/b/c/?"}],
    }
    container = await database.create_container("c", PartitionKey("/pk"), indexing_policy=policy)
    for number in (2, 1):
        await container.create_item(
            {"id": str(number), "pk": "k", "a": number, "b": {"c": number, "d": number}}
        )

    async def ordered(path: str) -> list[Any]:
        query = f"SELECT VALUE c.id FROM c WHERE c.x = null OR c.id != '' ORDER BY c.{path}"
        return await all_of(container.query_items(query, partition_key="k"))

    for path in ("a", "b.d", "id"):
        assert await ordered(path) == ["1", "2"]
    assert sorted(await ordered("_ts")) == ["1", "2"], "a system property is indexed in any case"
    for path in ("x", "b.c", "a.b", "pk"):
        with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
            await ordered(path)
        assert (
            "The index path corresponding to the specified order-by item is excluded."
            in refused.value.message
        )


@pytest.mark.parametrize("root", ["/*", "/"])
async def test_the_root_may_be_written_in_the_old_way(database: AsyncDatabase, root: str) -> None:
    """As older clients and examples do; so does Microsoft's own test of ORDER BY."""
    policy: Any = {"includedPaths": [{"path": root}], "excludedPaths": [{"path": "/b/"}]}
    container = await database.create_container("c", PartitionKey("/pk"), indexing_policy=policy)
    for number in (2, 1):
        await container.create_item({"id": str(number), "pk": "k", "a": number, "b": {"c": number}})

    query = "SELECT VALUE c.id FROM c ORDER BY c."
    assert await all_of(container.query_items(query + "a", partition_key="k")) == ["1", "2"]
    with pytest.raises(exceptions.CosmosHttpResponseError, match="excluded"):
        await all_of(container.query_items(query + "b.c", partition_key="k"))


async def test_a_container_without_an_index_serves_no_order_by(database: AsyncDatabase) -> None:
    policy: Any = {"indexingMode": "none", "automatic": False}
    container = await database.create_container("c", PartitionKey("/pk"), indexing_policy=policy)

    for path in ("id", "_ts", "a"):
        with pytest.raises(exceptions.CosmosHttpResponseError, match="excluded"):
            await all_of(
                container.query_items(f"SELECT * FROM c WHERE c.x = 1 ORDER BY c.{path}", partition_key="k")
            )


async def test_an_order_by_several_properties_needs_a_composite_index(database: AsyncDatabase) -> None:
    policy: Any = {
        "compositeIndexes": [[{"path": "/a", "order": "ascending"}, {"path": "/b", "order": "descending"}]]
    }
    container = await database.create_container("c", PartitionKey("/pk"), indexing_policy=policy)
    for number, (a, b) in enumerate([(1, 1), (2, 1), (1, 2), (2, 2)]):
        await container.create_item({"id": str(number), "pk": "k", "a": a, "b": b})

    async def ordered(order: str) -> list[Any]:
        query = f"SELECT VALUE [c.a, c.b] FROM c ORDER BY {order}"
        return await all_of(container.query_items(query, partition_key="k", max_item_count=1))

    assert await ordered("c.a, c.b DESC") == [[1, 2], [1, 1], [2, 2], [2, 1]]
    assert await ordered("c.a DESC, c.b ASC") == [[2, 1], [2, 2], [1, 1], [1, 2]]
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        await ordered("c.a, c.b")
    assert "composite index" in refused.value.message


WRONG: list[tuple[str, str]] = [
    ("SELEC * FROM c", "Syntax error"),
    ("SELECT * FROM c WHERE", "Syntax error"),
    ("SELECT * FROM c WHERE c.x =", "Syntax error"),
    ("SELECT * FROM c; SELECT * FROM c", "Syntax error"),
    ("DELETE FROM c", "Syntax error"),
    ("SELECT * FROM c WHERE c.x IS NULL", "Syntax error"),
    ("SELECT * FROM c WHERE FROBNICATE(c.x)", "FROBNICATE"),
    ("SELECT * FROM c WHERE REGEXMATCH(c.x, 'a')", "REGEXMATCH"),
    ("SELECT VALUE udf.f(c.x) FROM c", "user defined functions"),
    ("SELECT * FROM c WHERE LENGTH(c.x, 1) = 1", "LENGTH takes"),
    ("SELECT * FROM c WHERE d.x = 1", "'d' could not be resolved"),
    ("SELECT COUNT(1) + 1 FROM c", "Compositions of aggregates"),
    ("SELECT c.x, COUNT(1) FROM c", "GROUP BY"),
    ("SELECT * FROM c WHERE COUNT(1) = 1", "COUNT"),
    ("SELECT * FROM c ORDER BY c.x + 1", "could not be mapped to a document path"),
    ("SELECT TOP -1 * FROM c", "Syntax error"),
    ("SELECT TOP 1.5 * FROM c", "not negative"),
    ("SELECT * FROM c OFFSET 'a' LIMIT 1", "not negative"),
]


async def test_what_is_wrong_or_not_supported_is_named(container: AsyncContainer) -> None:
    await container.create_item({"id": "1", "pk": "a", "x": 1})

    for query, says in WRONG:
        with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
            await all_of(container.query_items(query, partition_key="a"))

        assert refused.value.status_code == 400, query
        assert says in refused.value.message, query


async def test_over_partitions_a_merging_query_is_sent_for_its_plan(
    wide: AsyncContainer, faulty_raw: Raw
) -> None:
    headers = {
        "x-ms-documentdb-isquery": "True",
        "Content-Type": "application/query+json",
        "x-ms-documentdb-query-enablecrosspartition": "True",
    }

    async def ask(query: str, **more: str) -> Any:
        sent = {**headers, **{name.replace("_", "-"): value for name, value in more.items()}}
        return await faulty_raw.send("POST", items_path(wide), headers=sent, body={"query": query})

    ordered = await ask("SELECT * FROM c ORDER BY c.x")
    plain = await ask("SELECT * FROM c")
    refused = await ask("SELECT * FROM c", x_ms_documentdb_query_enablecrosspartition="False")
    pinned = await ask("SELECT * FROM c WHERE c.pk = 'a'", x_ms_documentdb_query_enablecrosspartition="False")

    assert (ordered.status, ordered.sub_status) == (400, "1004")
    plan = await plan_of(faulty_raw, wide, "SELECT * FROM c ORDER BY c.x", "OrderBy")
    assert json.loads(ordered.body["additionalErrorInfo"]) == plan.body
    assert plain.status == 200
    assert refused.status == 400
    assert "Cross partition query is required but disabled" in refused.body["message"]
    assert pinned.status == 200
