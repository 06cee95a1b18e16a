"""Each outcome of a message at a target of a reaction is a step that the model of several targets allows.

The model has one message in one hand, for the targets of several reactions; here each reaction has its own delivery of
it, so a call has to deal with the targets of its reaction alone.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from cosmos_outbox.cosmos.aggregates.documents import REACTION_TYPE
from cosmos_outbox.cosmos.inbox.reactions import by_id
from cosmos_outbox.inbox.message import Event
from cosmos_outbox.service import Service
from replayed.commits import Commit, Document, Ended
from replayed.messages import Messages
from tests.models.reaction_targets import Model, State

Pair = tuple[str, str]
"""Reaction and target."""


class TargetsReplayed:
    """One run of a service's reactions, step by step."""

    def __init__(self, service: Service) -> None:
        self._written = Messages(service)
        self._targets: dict[str, dict[str, list[str]]] = {}
        """By message and reaction."""
        self._recorded: dict[str, set[Pair]] = defaultdict(set)

    def not_allowed(self, steps: Iterable[Commit | Ended]) -> Iterator[str]:
        """The steps that the model does not allow."""
        for step in steps:
            if isinstance(step, Ended):
                if why := self._why_not_ended(step):
                    yield f"{step.by}: {why}"
                continue
            for was, now in step.changes:
                if now is not None and was is None and (why := self._why_not_written(now)):
                    yield f"{step.at.isoformat()} {step.by}: {why}"
            for event in self._written.saw(step):
                self._targets[event.id] = dict(self._named(event))

    def _named(self, event: Event) -> Iterator[tuple[str, list[str]]]:
        for name, each in self._written.reactions.items():
            if each.aggregate_type == event.aggregate.type:
                yield name, [*by_id(each.targets(event))]

    def _why_not_written(self, document: Document) -> str:
        """Empty: the model allows it. What is written over a record is of the model of reactions."""
        if document.get("type") != REACTION_TYPE:
            return ""
        reaction, target = document["data"]["reaction"], document["partitionKey"]
        if (found := self._written.of(document)) is None:
            return f"the record of {reaction} at {target} has another's id (reaction_in_id, target_in_id)"
        message, pair = found.message.id, (reaction, target)
        pairs = tuple((name, each) for name, those in self._targets[message].items() for each in those)
        if pair not in pairs:
            return f"{message} has a record of {reaction} at {target}, which is none of its targets"
        steps = dict(Model(targets=pairs).successors(self._state(message, pairs, at=pairs.index(pair))))
        self._recorded[message].add(pair)
        return "" if "stored" in steps else f"{message} has two records of {reaction} at {target}"

    def _why_not_ended(self, step: Ended) -> str:
        pairs = tuple((step.reaction, each) for each in self._targets[step.event].get(step.reaction, []))
        model, state = Model(targets=pairs), self._state(step.event, pairs)
        while not state.completed:
            steps = dict(model.successors(state))
            silent = steps.get("the record is there") or steps.get("completes it")
            if silent is None:
                return f"{step.event} is {step.how}, and {pairs[state.at or 0]} has no outcome (complete_after_all)"
            state = silent
        return ""

    def _state(self, message: str, pairs: tuple[Pair, ...], *, at: int = 0) -> State:
        recorded = self._recorded[message]
        done = frozenset(place for place, pair in enumerate(pairs) if pair in recorded)
        return State(done, frozenset(recorded), at)
