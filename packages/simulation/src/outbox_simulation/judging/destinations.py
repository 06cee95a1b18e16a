"""A destination gets what it is for, and nothing else: each event as it was stored, in its aggregate's order."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from outbox_simulation.judging.records import HandedOut, Stored
from outbox_simulation.judging.violation import Violation


@dataclass(frozen=True)
class Wants:
    """What a destination is declared to be for."""

    actions: frozenset[str] | None = None
    """None: all."""
    begin: datetime | None = None
    """What was raised earlier is not for it."""

    def takes(self, event: Stored) -> bool:
        """By the action and the writer's own time of the event."""
        if self.actions is not None and event.action not in self.actions:
            return False
        return self.begin is None or datetime.fromisoformat(event.body["createdAt"]) >= self.begin


def destination(
    name: str, stored: Mapping[str, Stored], taken: Sequence[HandedOut], wants: Wants
) -> Iterator[Violation]:
    """What is wrong with what a destination has taken. An event that comes again is no other one."""
    first: dict[str, HandedOut] = {}
    for each in taken:
        first.setdefault(each.message_id, each)
    for event in stored.values():
        if wants.takes(event) and event.event not in first:
            what = f"{event.action} {event.event} (sequence {event.sequence}) of {event.aggregate}"
            yield Violation(f"{name}: lost event", what, may_pass=True)
    reached: defaultdict[str, int] = defaultdict(int)
    for message_id, each in first.items():
        what = f"{each.subject} {message_id} (sequence {each.sequence}) of {each.aggregate}"
        known = stored.get(message_id)
        if known is None:
            yield Violation(f"{name}: sent, and never stored", what)
            continue
        if not wants.takes(known):
            yield Violation(f"{name}: not for it", what)
        told = (each.aggregate, each.subject, each.sequence, each.body)
        if told != (known.aggregate, known.action, known.sequence, known.body):
            yield Violation(f"{name}: message and store differ", what)
        if each.sequence <= reached[each.aggregate]:
            yield Violation(f"{name}: order", f"{what}, after {reached[each.aggregate]}")
        reached[each.aggregate] = max(reached[each.aggregate], each.sequence)
