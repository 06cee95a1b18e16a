"""The claims of a transport that keeps some, for those who erase them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from cosmos_outbox.kernel.aggregate_key import AggregateKey


@dataclass
class OneClaim:
    """One claim of each aggregate. See :class:`cosmos_outbox.operations.leaving.ClaimedBodies`."""

    emptied: list[tuple[AggregateKey, set[str], set[str]]] = field(default_factory=list)
    """Of which aggregate, and what was to be spared: the ids and the actions of events."""

    async def of(self, aggregate: AggregateKey) -> Sequence[str]:
        self.asked = aggregate
        return ["a claim"]

    async def empty(self, names: Sequence[str], *, living: Collection[str], kept: Collection[str]) -> int:
        self.emptied.append((self.asked, {*living}, {*kept}))
        return len(names)
