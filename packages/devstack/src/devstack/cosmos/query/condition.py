"""The condition of a patch: ``FROM c WHERE ...``, a query without its SELECT, asked of one item."""

from devstack.cosmos.protocol.json_text import Json
from devstack.cosmos.query.evaluate import Compiler
from devstack.cosmos.query.parse import parse


def holds(condition: str, document: Json) -> bool:
    """Raises 400 for a condition that is no query."""
    query = parse(f"SELECT * {condition}")
    compiler = Compiler({})
    matches = compiler.predicate(query.where)
    return any(matches(row) for row in compiler.document_rows(query)(document))
