"""A list of targets is stored, and its targets get outcomes, in steps that the model of looked-up targets allows.

What a look-up tells is the service's own affair: who replays a run says what each document that is written makes of it.
A target's outcome is stored once here; what may become of a refusal is of the model of reactions. An operator gives a
message up in one step of the model, and target by target in the code: until he is done, others get their outcomes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from cosmos_outbox.cosmos.aggregates.documents import REACTION_LIST_TYPE, REACTION_TYPE
from cosmos_outbox.inbox.reaction_decision import ReactionOutcome
from cosmos_outbox.wiring.service import Service
from replayed.commits import Commit, Document, Ended
from replayed.messages import Messages
from tests.models.reaction_lists import Model, Process, State

Tells = Callable[[Document], frozenset[str] | None]
"""What a look-up tells once this document is written; None: as before."""

_GIVES_UP = "an operator gives it up"


@dataclass
class _Message:
    """One message, as the model has it."""

    sent: int
    """Which list was the newest when it was stored."""
    state: State = field(default_factory=lambda: State((Process(),), newest=0))

    @property
    def stored(self) -> frozenset[str]:
        return self.state.stored or frozenset()


class ListsReplayed:
    """One run of a reaction that looks its targets up, step by step."""

    def __init__(self, service: Service, reaction: str, tells: Tells) -> None:
        self._reaction, self._tells = reaction, tells
        self._lists = [frozenset[str]()]
        self._written = Messages(service)
        self._messages: dict[str, _Message] = {}

    def not_allowed(self, steps: Iterable[Commit | Ended]) -> Iterator[str]:
        """The steps that the model does not allow."""
        for step in steps:
            if isinstance(step, Ended):
                if step.reaction == self._reaction and (why := self._why_not_ended(step)):
                    yield f"{step.by}: {why}"
                continue
            for was, now in step.changes:
                if why := self._why_not_written(was, now):
                    yield f"{step.at.isoformat()} {step.by}: {why}"
            for event in self._written.saw(step):
                self._messages[event.id] = _Message(len(self._lists) - 1)

    def _why_not_written(self, was: Document | None, now: Document | None) -> str:
        """Empty: the model allows it."""
        document = now or was or {}
        if now is not None and (told := self._tells(now)) is not None and told != self._lists[-1]:
            self._lists.append(told)
        if document.get("type") == REACTION_LIST_TYPE:
            if was is not None or now is None:
                return "a list is written over, or removed (list_stored_once)"
            return self._why_not_stored(now)
        if document.get("type") == REACTION_TYPE and document["data"]["reaction"] == self._reaction:
            return self._why_not_recorded(document) if was is None else ""
        return ""

    def _why_not_stored(self, document: Document) -> str:
        found = self._written.of_list(document)
        if found is None:
            return f"the list {document['id']} is of no message"
        data, message = document["data"], self._messages[found.id]
        stored, gave_up = frozenset(data["targets"]), bool(data["reason"])
        allowed = {(each.stored, each.given_up) for each in _stored(self._model(message), message.state)}
        message.state = message.state._replace(stored=stored, given_up=gave_up)
        if (stored, gave_up) in allowed:
            return ""
        how = "given up" if gave_up else "looked up (list_fenced)"
        return f"{sorted(stored)} is no list of {found.id} that can be {how}: {_told(allowed)}"

    def _why_not_recorded(self, record: Document) -> str:
        found = self._written.of(record)
        if found is None:
            return f"the record {record['id']} is of no message"
        message, target = self._messages[found.message.id], found.place.target
        if record["data"]["outcome"] == ReactionOutcome.DISCARDED:
            passes = self._after(message, _GIVES_UP)
            allowed = passes is not None and target in passes.passed
            message.state = message.state._replace(passed=message.state.passed | {target})
        else:
            changed = self._after(message, f"changes {target}")
            allowed = changed is not None and not changed.problem
            message.state = message.state._replace(applied=message.state.applied | {target})
        if allowed:
            return ""
        return f"{target} gets {record['data']['outcome']} by {found.message.id}, whose list is {_told(message.stored)}"

    def _why_not_ended(self, step: Ended) -> str:
        message = self._messages[step.event]
        if message.state.stored is None:
            return f"{step.event} is {step.how}, and has no list"
        completed = self._after(message, "completes it")
        if completed is None or completed.problem:
            left = message.stored - message.state.applied - message.state.passed
            return f"{step.event} is {step.how}, and {_told(left)} of {_told(message.stored)} has no outcome"
        return ""

    def _model(self, message: _Message) -> Model:
        return Model(lists=tuple(self._lists[message.sent :]), sent=0)

    def _after(self, message: _Message, step: str) -> State | None:
        """What comes of a step of whoever has read the list, or of the operator; None: the model has no such step."""
        state = message.state
        given_up = state.given_up or (step == "completes it" and bool(state.passed))
        process = Process("apply", message.stored)
        told: Mapping[str, State] = dict(
            self._model(message).successors(state._replace(processes=(process,), given_up=given_up))
        )
        return told.get(step, told.get(f"1: {step}"))


def _stored(model: Model, first: State) -> Iterator[State]:
    """Each state in which the list has just been stored."""
    one = first._replace(processes=(Process(lives=0),), comes=1)
    seen, waiting = {one}, [one]
    while waiting:
        for _, after in model.successors(waiting.pop()):
            if after.stored != first.stored:
                yield after
            elif after not in seen:
                seen.add(after)
                waiting.append(after)


def _told(names: Iterable[object]) -> str:
    return f"{{{', '.join(sorted(map(str, names)))}}}"
