"""The names in a service's documents and messages never change: subscribers and stored documents rely on them."""

from dataclasses import dataclass

from infra.cosmos.marker_documents import StoredNames


@dataclass(frozen=True)
class WireNames:
    """The names that differ between one service and another."""

    source: str
    """CloudEvents ``source``, which together with the id identifies an event everywhere."""
    untyped: str | None = None
    """The aggregate type of event documents that were stored without one; None: there are no such documents."""
    parked: StoredNames | None = None
    """The names in parked documents that were stored before documents told their aggregate's type."""
