"""What a run left behind, judged by the declaration: nothing of what the processes say of themselves is asked.

The documents tell what was stored, the topic what was published, and the letters what was asked for.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from cosmos_outbox.composition.declarations import EffectDeclaration, ReactionDeclaration
from cosmos_outbox.cosmos.aggregates.deadlines import CAUSE
from cosmos_outbox.cosmos.aggregates.documents import EVENT_TYPE
from cosmos_outbox.cosmos.inbox.documents import SourceDocuments
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.aggregate import STORED, Aggregate
from cosmos_outbox.service import Service
from cosmos_outbox.testing import Message
from examples.checkout.tests.at_rest import agree
from outbox_simulation.derived_invariants.found import Document, LeftBehind, StoredChange, TakenMessage
from outbox_simulation.derived_invariants.reactions import reaction
from outbox_simulation.derived_invariants.resting_world import still_due
from outbox_simulation.derived_invariants.rules import broken
from outbox_simulation.derived_invariants.service_world import sources, stored_event
from outbox_simulation.invariants.violation import Violation


def left_behind(
    service: Service, stored: Sequence[Document], messages: Sequence[Message], letters: Sequence[str]
) -> LeftBehind:
    """Each transaction of the service raises one event, so the events are the transactions."""
    events = [stored_event(each) for each in stored if each.get("type") == EVENT_TYPE]
    events.sort(key=lambda each: (str(each.aggregate), each.sequence or 0))
    kinds = {each.id: each.aggregate.type for each in events}
    found = LeftBehind(
        changes=[
            StoredChange(None, [each], _by(service, kinds.get(each.data.get("causationId", "")), each.aggregate))
            for each in events
        ],
        taken=[
            TakenMessage(each.data["id"], _aggregate(each.properties), each.data) for each in messages
        ],
    )  # fmt: skip
    for kind in service.aggregates:
        of_kind = sources(SourceDocuments.of_library(kind.aggregate_type), stored)
        found.aggregates |= {AggregateKey(kind.aggregate_type, name): each for name, each in of_kind.items()}
    for declared in service.subscribers:
        if isinstance(declared, ReactionDeclaration):
            found.reactions.append(reaction(declared, f"/{service.name}", found, stored))
        elif isinstance(declared, EffectDeclaration):
            found.effects[declared.name] = (declared.aggregate_type, [*letters], declared.kinds)
    return found


def judge(found: LeftBehind, service: Service, now: datetime) -> list[Violation]:
    """Everything that is wrong; what ``may_pass`` is wrong for good if it stays."""
    kinds = {each.aggregate_type: each for each in service.aggregates}
    there = [_loaded(kinds[key.type], each.document) for key, each in found.aggregates.items()]
    due = [each for each in there if each.due is not None]
    return [
        *broken(found),
        *_early(found),
        *still_due(there, now),
        *(Violation("open", f"{each.key}", may_pass=True) for each in due),
        *(Violation("at rest", each, may_pass=True) for each in agree(there)),
    ]


def late_by(found: LeftBehind) -> list[float]:
    """How long after its time each deadline was met, in seconds."""
    return [(at - due).total_seconds() for at, due in _met(found)]


def _early(found: LeftBehind) -> Iterator[Violation]:
    for at, due in _met(found):
        if at < due:
            yield Violation("deadline early", f"{at}, and due at {due}")


def _met(found: LeftBehind) -> Iterator[tuple[datetime, datetime]]:
    """When each deadline was met, and when it was due."""
    for change in found.changes:
        [event] = change.events
        if event.cause.startswith(CAUSE) and not event.data.get("causationId"):
            due = found.aggregates[event.aggregate].document["payBy"]
            yield datetime.fromisoformat(event.data["createdAt"]), datetime.fromisoformat(due)


def _by(service: Service, cause: str | None, changed: AggregateKey) -> str:
    """The reaction that an event comes from, by the types of its cause and of what it changed."""
    return next(
        (
            each.name
            for each in service.subscribers
            if isinstance(each, ReactionDeclaration)
            and (each.aggregate_type, each.to.aggregate_type) == (cause, changed.type)
        ),
        "",
    )


def _aggregate(properties: Mapping[str, Any]) -> AggregateKey:
    return AggregateKey(properties["aggregateType"], properties["cloudEvents_subject"])


def _loaded(kind: type[Aggregate[Any]], data: Document) -> Aggregate[Any]:
    return kind.load(kind.state_type.model_validate(data, by_alias=True, by_name=False, context=STORED))
