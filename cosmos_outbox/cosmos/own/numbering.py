"""An aggregate's events are numbered 1, 2, 3 … without a gap: the last number stands in the aggregate's own document.

That holds only since the document is in the same transaction, and is created, or replaced at the version that was read:
of two writers at once one is refused. So a transaction in which the document is missing, or is written in another way,
is refused before it is sent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cosmos_outbox.cosmos.own.documents import NO_ID, Raised
from cosmos_outbox.cosmos.store.item import Item
from cosmos_outbox.cosmos.store.partition_key import at, parts, put
from cosmos_outbox.cosmos.store.writes import Write
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.errors import Unpublishable

_LARGEST = 2**53 - 1


@dataclass(frozen=True)
class Numbering:
    """``fields``: by the type of an aggregate the path of the last sequence in its document; None: it has none."""

    fields: Mapping[str, str | None]

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if not self.fields:
            raise ValueError("OwnContainer names no aggregate: name the type of each that raises events")
        for path in filter(None, self.fields.values()):
            if parts(path) in (("id",), ("type",), ("ttl",)):
                raise ValueError(f"{path} cannot hold a sequence: name a field of its own")

    @property
    def paths(self) -> Sequence[str]:
        """Where documents have a sequence."""
        return [path for path in self.fields.values() if path is not None]

    def check(self, aggregate: AggregateKey) -> None:
        """Raise ValueError for a type that was not declared, and Unpublishable for an id that no aggregate can have."""
        if aggregate.type not in self.fields:
            raise ValueError(
                f"{aggregate.type} is no aggregate of this service: name it in OwnContainer, with the path of its "
                "sequence or None"
            )
        if type(aggregate.id) is not str or NO_ID.search(aggregate.id):
            raise Unpublishable(
                f"the id of a {aggregate.type} must be a text without / \\ ? #, and not . or ..: give it such an id"
            )

    def number(self, raised: Sequence[Raised], writes: Mapping[str, Write]) -> list[int | None]:
        """The sequence of each event; the last one of an aggregate is put into its document.

        Raises ValueError: an aggregate's document is not in the transaction as it must be.
        """
        sequences: list[int | None] = []
        owners: dict[tuple[str, str], AggregateKey] = {}
        places: dict[AggregateKey, str] = {}
        for event in raised:
            path = self.fields[event.aggregate.type]
            if path is None:
                sequences.append(None)
                continue
            document_id = event.numbered_by
            owner = owners.setdefault((document_id, path), event.aggregate)
            if owner != event.aggregate or places.setdefault(event.aggregate, document_id) != document_id:
                raise ValueError(
                    f"{event.aggregate} must have one document, and that {path} for itself: name the same document in "
                    "each of its events"
                )
            item = _document(event.aggregate, path, writes.get(document_id), document_id)
            sequence = _last(event.aggregate, path, item) + 1
            put(item, path, sequence)
            sequences.append(sequence)
        return sequences


def _document(aggregate: AggregateKey, path: str, write: Write | None, document_id: str) -> Item:
    if write is None or write.kind in ("upsert", "delete", "patch"):
        done = (
            "is not in this transaction" if write is None else f"is in this transaction with {write.kind}()"
        )
        raise ValueError(
            f"the events of {aggregate} are numbered by {path} of document {document_id}, which {done}: create() it, "
            "or replace() it at the version that was read. To remove an aggregate, replace its document by one that "
            "says so, with a ttl"
        )
    if write.kind == "create" and at(write.item, path) is None:
        put(write.item, path, 0)
    return write.item


def _last(aggregate: AggregateKey, path: str, item: Item) -> int:
    last = at(item, path)
    if type(last) is not int or not 0 <= last < _LARGEST:
        raise ValueError(
            f"{path} of the document of {aggregate} must be the number of its newest event, as it was read: 0 only "
            "when it never had one, or subscribers take its next events for old ones"
        )
    return last
