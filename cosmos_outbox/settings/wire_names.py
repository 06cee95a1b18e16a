"""The names in a service's documents and messages never change: subscribers and stored documents rely on them."""

from dataclasses import dataclass

from cosmos_outbox.settings.own_container import OwnContainer


@dataclass(frozen=True)
class WireNames:
    """The names that differ between one service and another."""

    source: str
    """CloudEvents ``source``, which together with the id identifies an event everywhere."""
    untyped: str | None = None
    """The aggregate type of event documents that were stored without one; None: there are no such documents."""
    own: OwnContainer | None = None
    """A team's own container, when the events are stored in one."""
