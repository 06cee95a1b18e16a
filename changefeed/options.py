"""Every interval is in seconds; the defaults are those of the Azure Functions trigger for Cosmos DB.

Source: https://learn.microsoft.com/azure/azure-functions/functions-bindings-cosmosdb-v2-trigger
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal


@dataclass(frozen=True)
class StartFrom:
    """Where reading starts while a lease has no checkpoint. A checkpoint always wins."""

    point: Literal["beginning", "now"] | datetime = "now"

    @classmethod
    def beginning(cls) -> "StartFrom":
        """Every item that is still there."""
        return cls("beginning")

    @classmethod
    def now(cls) -> "StartFrom":
        """What changes after the processor was started."""
        return cls("now")

    @classmethod
    def at(cls, time: datetime) -> "StartFrom":
        """What changed after ``time``, to the second. Raises ValueError for a time without a zone."""
        if time.tzinfo is None:
            raise ValueError("the start time needs a time zone")
        return cls(time)

    def resolved(self, started: datetime) -> Literal["Beginning"] | datetime:
        """The SDK's ``start_time`` for a processor that was started at ``started``.

        "Now" becomes a time, so that a worker that has not read yet when a change comes does not miss it.
        The service reads the time to the second and exclusively, hence the second back; the .NET processor
        does the same.
        """
        if isinstance(self.point, datetime):
            return self.point.astimezone(UTC)
        return "Beginning" if self.point == "beginning" else started - timedelta(seconds=1)


@dataclass(frozen=True)
class ProcessorOptions:
    """How a processor polls and shares. Raises ValueError for values that cannot work."""

    poll_interval: float = 5.0
    """Pause after the feed of a lease had nothing new."""
    max_items: int | None = None
    """The page size asked for. A page may hold more: a transaction is never split. ``None``: the service's
    (100).
    """
    start: StartFrom = field(default_factory=StartFrom.now)
    acquire_interval: float = 13.0
    """Pause between two looks at who owns which leases."""
    expiration_interval: float = 60.0
    """A lease that was not written for so long is free to take."""
    renew_interval: float = 17.0

    def __post_init__(self) -> None:
        intervals = ("poll_interval", "acquire_interval", "expiration_interval", "renew_interval")
        for name in intervals:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be more than 0 seconds")
        if self.renew_interval >= self.expiration_interval:
            raise ValueError("renew_interval must be less than expiration_interval, or leases expire in use")
        if self.max_items is not None and self.max_items < 1:
            raise ValueError("max_items must be at least 1")
