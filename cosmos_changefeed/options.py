"""Options of a processor. Intervals are in seconds; the defaults are those of the Azure Functions Cosmos DB trigger.

Source: https://learn.microsoft.com/azure/azure-functions/functions-bindings-cosmosdb-v2-trigger
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal


@dataclass(frozen=True)
class StartFrom:
    """The start of reading for a lease without a checkpoint. A checkpoint always wins."""

    point: Literal["beginning", "now"] | datetime = "now"

    @classmethod
    def beginning(cls) -> "StartFrom":
        """From the first item that is still stored."""
        return cls("beginning")

    @classmethod
    def now(cls) -> "StartFrom":
        """From the start of the processor."""
        return cls("now")

    @classmethod
    def at(cls, time: datetime) -> "StartFrom":
        """From ``time``, to the second. Raises ValueError for a time without a time zone."""
        if time.tzinfo is None:
            raise ValueError("the start time has no time zone: give it one, such as datetime.UTC")
        return cls(time)

    def resolved(self, started: datetime) -> Literal["Beginning"] | datetime:
        """Returns the SDK's ``start_time`` for a processor that was started at ``started``.

        "Now" becomes a time, so that a worker does not miss a change before its first read. The service takes whole
        seconds and returns only later changes, so the time is one second earlier, as in the .NET processor.
        """
        if isinstance(self.point, datetime):
            return self.point.astimezone(UTC)
        return "Beginning" if self.point == "beginning" else started - timedelta(seconds=1)


@dataclass(frozen=True)
class ProcessorOptions:
    """Options for polling and sharing; all times in seconds. Raises ValueError for values that cannot work."""

    poll_interval: float = 5.0
    """The pause after a read of a lease's feed found nothing new."""
    max_items: int | None = None
    """Items in a page; a page may hold more, because a transaction is never split. ``None``: the service's 100."""
    start: StartFrom = field(default_factory=StartFrom.now)
    acquire_interval: float = 13.0
    """The pause between two checks for leases to take."""
    expiration_interval: float = 60.0
    """The time without a write after which a lease is free to take."""
    renew_interval: float = 17.0
    """The pause between two renewals of a lease."""
    mend_leases: bool = False
    """Whether deleted leases are created again. They start at ``start``, which must be the beginning. The .NET
    processor and the Functions trigger do not do this.
    """

    read_ahead: bool = True
    """Whether the next page is read while one is handled. The .NET processor and the Functions trigger never do so."""

    def __post_init__(self) -> None:
        intervals = ("poll_interval", "acquire_interval", "expiration_interval", "renew_interval")
        for name in intervals:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be more than 0 seconds")
        if self.renew_interval >= self.expiration_interval:
            raise ValueError("renew_interval must be less than expiration_interval, or leases expire in use")
        if self.mend_leases and self.start != StartFrom.beginning():
            raise ValueError(
                "mend_leases needs StartFrom.beginning(): a lease that is made again has no checkpoint, and would miss "
                "what was written before its start"
            )
        if self.max_items is not None and self.max_items < 1:
            raise ValueError("max_items must be at least 1")
