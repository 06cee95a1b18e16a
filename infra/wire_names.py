"""What one service calls its documents and messages. Fixed once: subscribers and stored documents rely on it."""

from dataclasses import dataclass

from infra.cosmos.parked_documents import StoredNames


@dataclass(frozen=True)
class WireNames:
    """The names that differ between one service and another."""

    source: str
    """CloudEvents ``source``: together with the id it identifies an event everywhere."""
    untyped: str | None = None
    """The aggregate type of event documents that were stored without one; None: there are no such documents."""
    parked: StoredNames | None = None
    """What parked documents were called before they told their aggregate's type."""
