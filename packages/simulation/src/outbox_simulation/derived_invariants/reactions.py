"""Reads a reaction's final records and the targets of each event, without any conclusion."""

from collections.abc import Sequence
from typing import Any

from cosmos_outbox.composition.declarations import ReactionDeclaration
from cosmos_outbox.cosmos.aggregates.documents import REACTION_TYPE
from cosmos_outbox.cosmos.inbox.reaction_decision import InOrder, TargetRef
from cosmos_outbox.cosmos.inbox.reactions import by_id, record_id
from cosmos_outbox.inbox.message import Event
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from outbox_simulation.derived_invariants.found import Document, LeftBehind, ReactionFound

Wanted = list[tuple[AggregateKey, str]]


def reaction(
    declared: ReactionDeclaration[Any], source: str, found: LeftBehind, stored: Sequence[Document]
) -> ReactionFound:
    """Returns a reaction with its records."""
    wanted, failures = dict[str, Wanted](), list[str]()
    for event in (event for each in found.events().values() for event in each):
        if event.aggregate.type == declared.aggregate_type:
            try:
                wanted[event.id] = _wanted(declared, event.message(source))
            except Exception as error:  # noqa: BLE001 - the user's own code may raise anything
                failures.append(f"{event.action} of {event.aggregate}: {error!r}")
    outcomes = {each["id"]: each["data"]["outcome"] for each in stored if each.get("type") == REACTION_TYPE}
    is_each, is_newest = declared.order is InOrder.EACH, declared.order is InOrder.NEWEST
    return ReactionFound(declared.name, is_each, is_newest, wanted, outcomes, failures)


def _wanted(declared: ReactionDeclaration[Any], message: Event) -> Wanted:
    """Returns each target, with the id of its record."""
    name, kind = declared.name, declared.to.aggregate_type
    targets = by_id(declared.targets(message)).items()
    places = [TargetRef.of(name, kind, *each, message, declared.order) for each in targets]
    return [(AggregateKey(kind, each.target), record_id(each)) for each in places]
