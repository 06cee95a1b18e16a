"""A publisher of a service's own: its broker is a file.

It knows no ``Failing``: an event that the broker does not take, while it takes others.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from cosmos_outbox.publisher import (
    Accepted,
    AggregateEvents,
    CloudEvents,
    FailureReason,
    Guarantees,
    OutboxEvent,
    Outcome,
    Publisher,
    Refused,
    Unknown,
)

LARGEST = 250_000


class Journal:
    """Appends each event, as a CloudEvent, to a file. Its readers order by the sequence, and drop what they have."""

    guarantees = Guarantees(
        ordered=True, deduplicates=False, mixes_aggregates=True, largest_message_bytes=LARGEST
    )

    def __init__(self, file: Path, service: CloudEvents) -> None:
        self._file, self._service = file, service

    async def publish(self, page: Sequence[AggregateEvents], until: float) -> Sequence[Outcome]:
        """Appends the events of a page until ``until``, by the monotonic clock."""
        return [self._append(each.events, until) for each in page]

    def _append(self, events: Sequence[OutboxEvent], until: float) -> Outcome:
        for accepted, event in enumerate(events):
            line = self._service.structured(event) + b"\n"
            if len(line) > LARGEST:
                return Refused(accepted, f"the event is larger than {LARGEST} bytes", shown_by_event=True)
            if asyncio.get_running_loop().time() >= until:
                return Unknown(accepted, "there was no time left", FailureReason.TOO_SLOW)
            try:
                with self._file.open("ab") as file:
                    file.write(line)
                    file.flush()
                    os.fsync(file.fileno())  # accepted is what a crash does not take away
            except OSError as error:
                return Unknown(accepted, f"the journal cannot be written: {error.strerror}")
        return Accepted()


def open_journal(settings: Mapping[str, str], service: CloudEvents, _: AsyncExitStack) -> Publisher:
    """Opens the publisher, with the settings of the service: ``Service(..., transport=open_journal)``."""
    return Journal(Path(settings["JOURNAL"]), service)
