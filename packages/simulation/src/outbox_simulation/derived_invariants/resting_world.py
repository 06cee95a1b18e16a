"""Checks a run at rest: whatever was due has happened, not before its time, and the aggregates are consistent."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from cosmos_outbox.cosmos.aggregates.deadlines import CAUSE
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.aggregate import STORED, Aggregate
from outbox_simulation.derived_invariants.found import Document, LeftBehind
from outbox_simulation.derived_invariants.service_world import ServiceWorld
from outbox_simulation.engine.processes import EPOCH
from outbox_simulation.invariants.violation import Violation

AtRest = Callable[[Sequence[Aggregate[Any]]], Iterable[str]]
"""Yields what is wrong between all aggregates that exist and are not deleted."""

Kinds = Mapping[str, type[Aggregate[Any]]]


class RestingWorld(ServiceWorld):
    """A service's world that makes these last checks when nothing else is wrong."""

    def __init__(self, at_rest: AtRest | None, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._at_rest = at_rest

    async def _look(self) -> list[Violation]:
        if wrong := await super()._look():
            return wrong
        found, now = await self.found(), EPOCH + timedelta(seconds=self.loop.time())
        kinds = {each.aggregate_type: each for each in self._of.service.aggregates}
        there = [
            _loaded(kinds[key.type], each.document)
            for key, each in found.aggregates.items()
            if key.type in kinds and not each.deleted
        ]
        soon = now + timedelta(seconds=self.patience_seconds)
        comes = any(each.due is not None and each.due < soon for each in there)
        detail = () if self._at_rest is None else self._at_rest(there)
        return [
            *not_due(found, kinds),
            *still_due(there, now),
            *(Violation("at rest", each, may_pass=comes) for each in detail),
        ]

    async def _publish_again(self) -> Violation:
        """Settles parked events first: publishing again would skip them."""
        await self._settle(self.desk)
        return await super()._publish_again()


def not_due(found: LeftBehind, kinds: Kinds) -> Iterator[Violation]:
    """Checks that whatever happened by itself was due in the state before."""
    before: dict[AggregateKey, Document] = {}
    for change in found.changes:
        first = change.events[0]
        if change.document is None or first.aggregate.type not in kinds:
            continue
        # The events of a reaction have the same correlation id.
        if first.cause.startswith(CAUSE) and not first.data.get("causationId"):
            was = before.get(first.aggregate)
            due = None if was is None else _loaded(kinds[first.aggregate.type], was).due
            if due is None or due > datetime.fromisoformat(first.data["createdAt"]):
                detail = f"{first.action} {first.sequence} of {first.aggregate}: it was due at {due}"
                yield Violation("happened, and was not due", detail)
        before[first.aggregate] = change.document


def still_due(there: Sequence[Aggregate[Any]], now: datetime) -> Iterator[Violation]:
    """Checks that nothing stays due."""
    for each in there:
        if each.due is not None and each.due <= now:
            yield Violation("still due", f"{each.key}, since {each.due}", may_pass=True)


def _loaded(kind: type[Aggregate[Any]], data: Document) -> Aggregate[Any]:
    return kind.load(kind.state_type.model_validate(data, by_alias=True, by_name=False, context=STORED))
