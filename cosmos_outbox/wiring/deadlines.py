"""A service looks for what is due where something can be, and nowhere else."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from cosmos_outbox.cosmos.aggregates.deadlines import DueAggregates
from cosmos_outbox.cosmos.own.deadlines import OwnDue
from cosmos_outbox.cosmos.own.transaction import Transactions
from cosmos_outbox.cosmos.store.container import Container
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.outbox.aggregate import Aggregate
from cosmos_outbox.outbox.aggregates import Aggregates
from cosmos_outbox.outbox.deadlines import Deadlines
from cosmos_outbox.settings.own_container import OwnContainer

Kinds = Sequence[type[Aggregate[Any]]]


def paths_of_times(kinds: Kinds, own: OwnContainer | None) -> Sequence[str]:
    """Where documents say when something is due; none: nothing can be."""
    if own is not None:
        return list(own.due)
    return ["/due"] if any(each.can_be_due() for each in kinds) else []


def deadlines_of(
    kinds: Kinds,
    container: Container,
    aggregates: Aggregates,
    transactions: Transactions | None = None,
    clock: Callable[[], datetime] = utc_now,
) -> Deadlines | None:
    """What meets the deadlines of those that can be due; None: none can, and nothing is looked for."""
    if transactions is not None:
        return Deadlines(OwnDue(transactions), clock) if transactions.times.paths else None
    due = {each.aggregate_type: each for each in kinds if each.can_be_due()}
    return Deadlines(DueAggregates(container, aggregates, due), clock) if due else None
