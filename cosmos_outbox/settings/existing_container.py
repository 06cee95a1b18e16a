"""Declares a team's existing container: the library knows of its documents only what is declared here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ExistingContainer:
    """A container that holds a team's own documents, and beside each the events of its changes.

    Raises ValueError: it could not hold events, or events could not be numbered in it.
    """

    partition_key: str | Sequence[str]
    """The container's partition key path, such as ``/tenantId``; for a hierarchical key the list of its paths."""
    aggregates: Mapping[str, str | None]
    """The types of the aggregates that raise events, each with the path of the sequence in its document, such as
    ``/lastSequence``: the document is then written with each event, conditional on the version read, and the events
    have no gap. None: the events of this type have no sequence."""
    default_ttl: int = -1
    """The container's default TTL in seconds; -1: a document expires only by a ``ttl`` of its own."""

    def __post_init__(self) -> None:
        if self.default_ttl != -1 and self.default_ttl < 1:
            raise ValueError(
                "default_ttl must be -1, or a number of seconds: with TTL off no event would ever expire"
            )

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the partition key."""
        return (self.partition_key,) if isinstance(self.partition_key, str) else tuple(self.partition_key)


@dataclass(frozen=True)
class DocumentSource:
    """Selects the team's own documents that are the aggregates of one type: a read model is healed from them."""

    where: Mapping[str, str | int | bool]
    """The paths and values of only these documents, as ``{"/type": "booking"}``; to be indexed."""
    id: str = "/id"
    """The path of the aggregate's id."""
    deleted: str = "/deleted"
    """The path of a flag that is true in a deleted aggregate's document, as long as that document exists."""


@dataclass(frozen=True)
class WireNames:
    """The names that differ between one service and another."""

    source: str
    """CloudEvents ``source``, which together with the id identifies an event everywhere."""
    untyped: str | None = None
    """The aggregate type of event documents that were stored without one; None: there are no such documents."""
    own: ExistingContainer | None = None
    """A team's own container, if the events are stored in one."""
