"""Selects the documents of one type's aggregates in a container, and reads the sequence of each."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Self

from cosmos_outbox.cosmos.aggregates.documents import EVENT_TYPE
from cosmos_outbox.cosmos.store.partition_key import NO_ITEM, OF_EVENTS, Item, at, field, parts
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.settings.names import DocumentSource, ExistingContainer

Value = str | int | bool


@dataclass(frozen=True)
class SourceDocuments:
    """The aggregates of one type, by paths in their documents."""

    type: str
    where: Mapping[str, Value]
    """The values at paths that all of the aggregates' documents have, and no other document has together."""
    sequence: str
    deleted: str
    """The path of the flag that the aggregate is deleted."""
    id: str = "/id"
    """The path of the aggregate's id."""

    @classmethod
    def of_library(cls, kind: str) -> Self:
        """Returns the selection of documents that this library stores."""
        return cls(kind, {"/type": kind}, "/data/lastSequence", "/data/deleted")

    @classmethod
    def declared(cls, own: ExistingContainer | None, kind: str, source: DocumentSource | None) -> Self | None:
        """Returns the selection of documents that a team stores; None: they are the library's.

        Raises ValueError: with this declaration no read model could be kept correct.
        """
        if own is None:
            if source is not None:
                raise ValueError(
                    "source= is for an ExistingContainer alone: leave it out, the library finds its own documents"
                )
            return None
        if source is None:
            raise ValueError(
                f"a read model of {kind} is healed from the team's own documents: say which they are, with "
                'source=DocumentSource({"/type": ...})'
            )
        sequence = own.aggregates.get(kind)
        if sequence is None:
            raise ValueError(
                f"a read model of {kind} is not possible: without a sequence a lost or late event is not detected: "
                "name the path of its sequence in the ExistingContainer, or declare an effect"
            )
        for path in (*source.where, source.id, source.deleted):
            parts(path)
        if not any(_identifies(own, path, value) for path, value in source.where.items()):
            raise ValueError(
                f"{dict(source.where)} selects event documents too, not only those of {kind}: name a field that only "
                "these documents have, such as /type, and its value"
            )
        return cls(kind, dict(source.where), sequence, source.deleted, source.id)

    def condition(self, holder: str) -> tuple[str, dict[str, Any]]:
        """Returns a query's condition that ``holder`` is one of these documents, and the condition's parameters."""
        values = {f"@is{number}": value for number, value in enumerate(self.where.values())}
        equal = [f"{field(holder, path)} = {name}" for path, name in zip(self.where, values, strict=True)]
        return " AND ".join(equal), values

    def query(self, since: datetime | None) -> tuple[str, dict[str, Any]]:
        """Returns a query for these documents; ``since``: for those last written since then, by the store's clock."""
        condition, values = self.condition("c")
        if since is not None:
            condition, values = (
                f"{condition} AND c._ts >= @since",
                {**values, "@since": int(since.timestamp())},
            )
        return f"SELECT * FROM c WHERE {condition}", values  # noqa: S608 - paths of a declaration

    def of_one(self, holder: str, aggregate_id: str) -> tuple[str, dict[str, Any]]:
        """Returns the same as :meth:`condition`, for one aggregate."""
        condition, values = self.condition(holder)
        return f"{field(holder, self.id)} = @aggregateId AND {condition}", {
            "@aggregateId": aggregate_id,
            **values,
        }

    def is_of(self, item: Item, aggregate_id: str) -> bool:
        """Returns the same as :meth:`of_one`, for a document that was read."""
        selecting = {self.id: aggregate_id, **self.where}
        return all(
            type(found := at(item, path)) is type(value) and found == value
            for path, value in selecting.items()
        )


def _identifies(own: ExistingContainer, path: str, value: Value) -> bool:
    """Whether no document of the outbox has this value there."""
    if path == "/type":
        return value not in (EVENT_TYPE, NO_ITEM)
    return parts(path)[0] not in OF_EVENTS and path not in own.paths


def last(value: Any) -> int:
    """Returns the sequence of an aggregate's newest event from its document; 0: it has none."""
    return value if type(value) is int else 0
