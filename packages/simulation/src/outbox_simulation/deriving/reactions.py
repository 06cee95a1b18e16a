"""What a reaction's own documents tell in the end, and for which targets each event was: nothing is concluded here."""

from collections.abc import Mapping, Sequence
from typing import Any

from cosmos_outbox.cosmos.aggregates.documents import REACTION_LIST_TYPE, REACTION_TYPE
from cosmos_outbox.cosmos.inbox.reaction_lists import document_id, targets_of
from cosmos_outbox.cosmos.inbox.reactions import record_id
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.inbox.reaction_decision import InOrder, TargetPlace, list_name
from cosmos_outbox.inbox.reaction_targets import by_id
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.wiring.reactions import ReactionOf
from outbox_simulation.deriving.found import Document, LeftBehind, ReactionFound

Wanted = list[tuple[AggregateKey, str]]


def reaction(
    declared: ReactionOf[Any], source: str, found: LeftBehind, stored: Sequence[Document]
) -> ReactionFound:
    """A reaction, and what its records tell."""
    wanted, failures = dict[str, Wanted](), list[str]()
    lists = {each["id"]: targets_of(dict(each)) for each in stored if each.get("type") == REACTION_LIST_TYPE}
    for event in (event for each in found.events().values() for event in each):
        if event.aggregate.type == declared.aggregate_type:
            try:
                wanted[event.id] = _wanted(declared, event.message(source), lists)
            except Exception as error:  # noqa: BLE001 - the user's own code, whatever it raises
                failures.append(f"{event.action} of {event.aggregate}: {error!r}")
    outcomes = {each["id"]: each["data"]["outcome"] for each in stored if each.get("type") == REACTION_TYPE}
    is_each, is_newest = declared.order is InOrder.EACH, declared.order is InOrder.NEWEST
    return ReactionFound(declared.name, is_each, is_newest, wanted, outcomes, failures)


def _wanted(declared: ReactionOf[Any], message: Event, lists: Mapping[str, Mapping[str, str]]) -> Wanted:
    """Each target, with the id of its record; of a list that nobody has looked up, the list's id."""
    name, kind = declared.name, declared.to.aggregate_type
    if declared.targets is not None:
        targets = by_id(declared.targets(message))
    elif (listed := document_id(list_name(name, message))) in lists:
        targets = lists[listed]
    else:
        return [(AggregateKey(kind, "(not looked up)"), listed)]
    places = [TargetPlace.of(name, kind, *each, message, declared.order) for each in targets.items()]
    return [(AggregateKey(kind, each.target), record_id(each)) for each in places]
