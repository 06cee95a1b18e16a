"""A publisher in memory, which passes the same contract suite as the real one; it proves nothing about time-outs."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.outbox.canonical import as_sent
from cosmos_outbox.outbox.publisher import Accepted, AggregateEvents, Guarantees, Outcome, Refused, Unknown

LARGEST_MESSAGE_BYTES = 256 * 1024
ANYTHING_GOES = Guarantees(ordered=True, deduplicates=True, mixes_aggregates=True, largest_message_bytes=None)


@dataclass
class FakePublisher:
    """Keeps what was sent, drops duplicates as the topic does, and fails as told."""

    sent: list[tuple[str, str]] = field(default_factory=list)
    """(aggregate id, message id), in the order accepted."""
    bodies: set[bytes] = field(default_factory=set)
    """What subscribers would get."""
    fail_for: set[str] = field(default_factory=set)
    """The ids of the aggregates for which the broker is away."""
    limit: int = LARGEST_MESSAGE_BYTES
    guarantees: Guarantees = ANYTHING_GOES
    until: float = 0.0
    """As the last call had it."""

    async def publish(self, page: Sequence[AggregateEvents], until: float) -> Sequence[Outcome]:
        self.until = until
        if monotonic() > until:
            return [Unknown(0, "too late") for _ in page]
        return [self._publish(group) for group in page]

    def of(self, aggregate: AggregateKey) -> list[str]:
        """The ids of an aggregate's events, in the order accepted."""
        return [event_id for owner, event_id in self.sent if owner == aggregate.id]

    def _publish(self, group: AggregateEvents) -> Outcome:
        owner = group.aggregate.id
        if owner in self.fail_for:
            return Unknown(0, "the broker is away")
        for number, event in enumerate(group.events):
            if len(json.dumps(dict(event.data))) > self.limit:
                return Refused(number, "too large", shown_by_event=True)
            message_id = event.message_id or event.id
            if (owner, message_id) not in self.sent:
                self.sent.append((owner, message_id))
                self.bodies.add(as_sent(dict(event.data)))
        return Accepted()
