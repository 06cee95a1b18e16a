"""The writes of a transactional batch: each says what must be there for the whole batch to be stored."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from cosmos_outbox.cosmos.store.item import Item


@dataclass(frozen=True)
class Write:
    """One write in a transactional batch; with ``if_match`` the item must be at that version."""

    kind: Literal["create", "replace", "upsert", "delete", "patch"]
    item: Item
    if_match: str | None = None

    @classmethod
    def create(cls, item: Item) -> Self:
        """A write that fails when the item exists."""
        return cls("create", item)

    @classmethod
    def replace(cls, item: Item, if_match: str) -> Self:
        """A write that fails unless the item exists at that version."""
        return cls("replace", item, if_match)

    @classmethod
    def upsert(cls, item: Item) -> Self:
        """A write that replaces the item or creates it."""
        return cls("upsert", item)

    @classmethod
    def delete(cls, item_id: str, if_match: str | None = None) -> Self:
        """A write that fails unless the item exists; with ``if_match``, at that version."""
        return cls("delete", {"id": item_id}, if_match)

    @classmethod
    def patch(cls, patch: Item, if_match: str | None = None) -> Self:
        """A write that fails unless the item exists, at that version, and the patch's ``condition`` holds.

        ``patch`` has the item's ``id``, ``operations``, and ``condition`` where there is one.
        """
        return cls("patch", patch, if_match)

    def operation(self) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
        """The SDK's form, made again for each attempt: the SDK removes ``if_match_etag`` from the dict that it gets."""
        condition = {} if self.if_match is None else {"if_match_etag": self.if_match}
        match self.kind:
            case "create" | "upsert":
                return self.kind, (self.item,), condition
            case "replace":
                return self.kind, (self.item["id"], self.item), condition
            case "delete":
                return self.kind, (self.item["id"],), condition
            case "patch":
                if "condition" in self.item:
                    condition["filter_predicate"] = self.item["condition"]
                return self.kind, (self.item["id"], self.item["operations"]), condition


def size_in_bytes(writes: Sequence[Write]) -> int:
    """The approximate size of the batch on the wire."""
    return sum(len(json.dumps(write.item)) for write in writes)
