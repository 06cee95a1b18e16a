"""A loop that goes round, even one that fails each time, differs from a loop that hangs: the time of a round tells."""

from cosmos_outbox.kernel.clock import monotonic


class Pulse:
    """When a loop last came round, and whether that round failed."""

    def __init__(self) -> None:
        self.failed = False
        """Whether the last round failed."""
        self._at = monotonic()

    @property
    def silent_seconds(self) -> float:
        """Since the end of the last round, or since the loop began."""
        return monotonic() - self._at

    def beat(self, *, failed: bool = False) -> None:
        """Note the end of a round."""
        self.failed = failed
        self._at = monotonic()
