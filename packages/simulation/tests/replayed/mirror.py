"""The documents of a container, kept from the requests that its store carried out: each gives the commit that it was.

What expires is shown by no request: a document that was there is taken for the one before the next write.
"""

import json
from collections.abc import Mapping, MutableSequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from replayed.commits import Commit, Document

_QUERIES = {"x-ms-documentdb-isquery", "x-ms-cosmos-is-query-plan-request", "a-im"}
"""Headers of requests that are sent as if they wrote, and read."""

_REMOVED = {"_rid", "_self", "_etag", "_ts", "_attachments"}


@dataclass
class Mirror:
    """One container's documents, by partition and id."""

    commits: MutableSequence[Any] = field(default_factory=list[Commit])
    """In the order in which they were carried out; those of several containers may go to one list."""
    unread: list[str] = field(default_factory=list)
    """Requests that change documents in a way that is not followed here: patches."""
    _documents: dict[tuple[str, str], Document] = field(default_factory=dict)

    def carried_out(
        self, at: datetime, by: str, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> None:
        """A request that the store answered with success; what changes no document is left alone."""
        headers = {name.lower(): value for name, value in headers.items()}
        if not _QUERIES.isdisjoint(headers) or "/docs" not in path:
            return
        partition = headers.get("x-ms-documentdb-partitionkey", "")
        named = path.partition("/docs/")[2]
        changes: list[tuple[Document | None, Document | None]] = []
        if "x-ms-cosmos-is-batch-request" in headers:
            for each in json.loads(body):
                kind = each["operationType"]
                document = each.get("resourceBody")
                changes += self._change(kind, partition, str(each.get("id") or document["id"]), document)
        elif method in ("POST", "PUT"):
            document = json.loads(body)
            changes = self._change("Create", partition, document["id"], document)
        elif method in ("DELETE", "PATCH"):
            changes = self._change(method.title(), partition, named, None)
        if changes:
            self.commits.append(Commit(at, tuple(changes), by))

    def _change(
        self, kind: str, partition: str, name: str, document: dict[str, Any] | None
    ) -> list[tuple[Document | None, Document | None]]:
        before = self._documents.get((partition, name))
        if kind == "Patch":
            self.unread.append(name)
        if kind in ("Read", "Patch"):
            return []
        if kind == "Delete":
            self._documents.pop((partition, name), None)
            return [(before, None)]
        assert document is not None, f"{kind} has a document"
        after = {key: value for key, value in document.items() if key not in _REMOVED}
        self._documents[partition, name] = after
        return [(before, after)]
