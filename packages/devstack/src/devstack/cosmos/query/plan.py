"""How a client reads a query from all partitions itself: the query for each partition, and what to do with the answers.

Clients merge by ORDER BY and GROUP BY, add up aggregates, drop duplicates and count off OFFSET and LIMIT. The rewritten
query gives them, for each result, the sort keys (``orderByItems``) or the keys of the group (``groupByItems``) and the
result (``payload``), or the partial aggregates as ``[{"item": ...}]``.

Sources of GROUP BY: the query plans in the tests of azure-cosmos-dotnet-v3 (QueryPartitionProvider), and recorded
answers (azure-cosmos-dotnet-v2 issue 783).
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from devstack.cosmos.protocol.errors import bad_request, unsupported
from devstack.cosmos.protocol.json_text import Json
from devstack.cosmos.query import tree
from devstack.cosmos.query.page import first_position
from devstack.cosmos.query.text import expression_text, query_text
from devstack.cosmos.storage.epk import FIRST, LAST

VERSION = 2
_AGGREGATE_NAMES = {"COUNT": "Count", "SUM": "Sum", "MIN": "Min", "MAX": "Max", "AVG": "Average"}


def query_plan(
    query: tree.Query, parameters: Mapping[str, Any], effective_key: str | None, *, features: Collection[str]
) -> Json:
    """The plan; ``effective_key`` is the one partition key that the query is about, if it is one.

    ``features``: what the client says that it can merge. Raises 400.
    """
    if query.group_by:
        _check_groups(query, features)
    aggregates = _aggregates(query)
    if aggregates:
        query = replace(query, order_by=())  # one result has no order
    position = first_position(query, parameters)
    keys = [expression_text(key.value) for key in query.order_by]
    of_groups = _aggregate_names(query) if query.group_by and not query.value else {}
    info: Json = {
        "distinctType": _distinct_type(query),
        "top": None if query.top is None else first_position(replace(query, limit=None), parameters).limit,
        "offset": None if query.offset is None else position.offset,
        "limit": None if query.limit is None else first_position(replace(query, top=None), parameters).limit,
        "orderBy": ["Descending" if key.descending else "Ascending" for key in query.order_by],
        "orderByExpressions": keys,
        "groupByExpressions": [expression_text(key) for key in query.group_by],
        "groupByAliases": list(of_groups),
        "aggregates": [] if of_groups else [_AGGREGATE_NAMES[call.function] for call in aggregates],
        "groupByAliasToAggregateType": of_groups,
        "rewrittenQuery": query_text(_rewritten(query, aggregates, position.offset)),
        "hasSelectValue": query.value,
        "dCountInfo": None,
        "hasNonStreamingOrderBy": False,
    }
    return {
        "partitionedQueryExecutionInfoVersion": VERSION,
        "queryInfo": info,
        "queryRanges": [_query_range(effective_key)],
    }


def _query_range(effective_key: str | None) -> Json:
    one = effective_key is not None
    minimum, maximum = (effective_key, effective_key) if one else (FIRST, LAST)
    return {"min": minimum, "max": maximum, "isMinInclusive": True, "isMaxInclusive": one}


def _check_groups(query: tree.Query, features: Collection[str]) -> None:
    if "GroupBy" not in features:
        raise bad_request(
            "Query contains 1 or more unsupported features. Upgrade your SDK to a version that does support the"
            " requested features:\nQuery contained GroupBy, which the calling client does not support."
        )
    if query.distinct:
        raise unsupported("DISTINCT with GROUP BY in a query whose results the client merges")


def _aggregate_names(query: tree.Query) -> dict[str, str | None]:
    """By the name of each selected expression, its aggregate; None: it is the same for the whole group."""
    return {
        name: _AGGREGATE_NAMES[value.function]
        if isinstance(value, tree.Call) and tree.is_aggregate(value)
        else None
        for name, value in query.items or ()
    }


def _aggregates(query: tree.Query) -> list[tree.Call]:
    found = []
    for _, value in query.items or ():
        if isinstance(value, tree.Call) and tree.is_aggregate(value):
            found.append(value)
        elif tree.has_aggregate(value):
            raise bad_request("Compositions of aggregates and other expressions are not allowed.")
    return found


def _distinct_type(query: tree.Query) -> str:
    if not query.distinct:
        return "None"
    selected = [value for _, value in query.items or ()]
    in_order = query.value and selected == [key.value for key in query.order_by]
    return "Ordered" if in_order else "Unordered"


def _rewritten(query: tree.Query, aggregates: list[tree.Call], offset: int) -> tree.Query:
    if query.group_by:
        return _with_groups(query)
    if query.limit is not None:
        total = tree.Binary("+", query.limit, tree.Constant(offset))
        query = replace(query, offset=tree.Constant(0), limit=total)
    if aggregates and query.value:
        partial = tree.ArrayLiteral((_partial(aggregates[0]),))
        return replace(query, items=(("", partial),), top=None, offset=None, limit=None)
    if query.order_by:
        return _with_keys(query)
    return query


def _partial(call: tree.Call) -> tree.Expression:
    """What one partition contributes: of an average the sum and the count.

    Beside a minimum or maximum stands in ``item2`` how many values it is of: a partition without a value has none.
    """
    count = ("count", replace(call, function="COUNT"))
    members: list[tuple[str, tree.Expression]] = [("item", call)]
    if call.function == "AVG":
        members = [("item", tree.ObjectLiteral((("sum", replace(call, function="SUM")), count)))]
    elif call.function in ("MIN", "MAX"):
        members.append(("item2", tree.ObjectLiteral(((call.function.lower(), call), count))))
    return tree.ObjectLiteral(tuple(members))


def _with_groups(query: tree.Query) -> tree.Query:
    """Each group with its keys; TOP, OFFSET and LIMIT count whole groups, which only the client has."""
    keys = tree.ArrayLiteral(tuple(tree.ObjectLiteral((("item", key),)) for key in query.group_by))
    selected = [
        (name, _partial(value) if isinstance(value, tree.Call) and tree.is_aggregate(value) else value)
        for name, value in query.items or ()
    ]
    payload: tree.Expression = tree.ObjectLiteral(tuple(selected))
    if query.value:
        aggregated = selected != list(query.items or ())
        payload = tree.ArrayLiteral((selected[0][1],)) if aggregated else selected[0][1]
    items = (("groupByItems", keys), ("payload", payload))
    return replace(query, items=items, value=False, top=None, offset=None, limit=None)


def _with_keys(query: tree.Query) -> tree.Query:
    root = tree.Name(query.sources[0].alias)
    keys = tree.ArrayLiteral(tuple(tree.ObjectLiteral((("item", key.value),)) for key in query.order_by))
    where = query.where
    if query.items is None:
        payload: tree.Expression = root
    elif query.value:
        payload = query.items[0][1]
        defined = tree.Call("IS_DEFINED", (payload,))
        where = defined if where is None else tree.Binary("AND", where, defined)
    else:
        payload = tree.ObjectLiteral(query.items)
    items = (
        ("_rid", tree.Property(root, tree.Constant("_rid"))),
        ("orderByItems", keys),
        ("payload", payload),
    )
    query = replace(query, items=items, value=False, where=where)
    if query.distinct:
        # With the keys next to it no result equals another: duplicates are the client's to drop, before it counts.
        return replace(query, distinct=False, top=None, offset=None, limit=None)
    return query
