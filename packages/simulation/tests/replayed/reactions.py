"""Each record of a message is written in a step that the model of reactions allows, with what it says has happened.

A message's number in the model is its place in its source. What a reaction makes of a message is its own, so each of
the model's answers may be; which of them goes with which record, cursor and change is what is looked at. An event that
names a message as its cause, and comes without that message's record, is none of the model's.

A no holds for the target as it was read, and what does not change the target does not name its version: another may
change it between the two. So a no is judged by each state that the target had within the longest call.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import NamedTuple

from cosmos_outbox.cosmos.aggregates.documents import (
    EVENT_TYPE,
    REACTION_CURSOR_TYPE,
    REACTION_TYPE,
    request_id,
)
from cosmos_outbox.cosmos.inbox.reaction_decision import InOrder, ReactionOutcome
from cosmos_outbox.inbox.receiver import LONGEST_CALL_SECONDS
from cosmos_outbox.service import Service
from replayed.commits import Commit, Document, NotAllowed
from replayed.messages import Messages, Recorded
from tests.models.reactions import Model, Process, State, Story, Thing

_ANSWERS = ("adds", "makes", "needs-other", "wants-other")
_LONG_AGO = datetime.min.replace(tzinfo=UTC)
_WAYS = (("message", ""), ("operator", "apply"), ("operator", "discard"))


class _View(NamedTuple):
    """What one transaction makes of a message and its target."""

    outcome: str
    changed: bool
    cursor: int | None


class _Before(NamedTuple):
    """What was there."""

    kind: str
    """Of the target: absent, living, deleted."""
    cursor: int
    refused: bool
    """The message was refused, and its record says so."""


class _Target(NamedTuple):
    """A target at one time."""

    kind: str = "absent"
    """Or living, or deleted."""
    sequence: int = 0
    """As a record has it: 0 where no target lives."""

    @classmethod
    def of(cls, document: Document) -> "_Target":
        data = document["data"]
        return cls("deleted") if data.get("deleted") else cls("living", data["lastSequence"])


@dataclass
class _Partition:
    """What is known of a target, and what changed it."""

    targets: list[tuple[datetime, _Target]] = field(default_factory=lambda: [(_LONG_AGO, _Target())])
    """Each, and since when it is so; the newest last."""
    cursors: dict[str, int] = field(default_factory=dict)
    records: dict[str, tuple[str, datetime]] = field(default_factory=dict)
    """By id: what it says, and when it expires."""

    @property
    def target(self) -> _Target:
        return self.targets[-1][1]

    def seen(self, at: datetime) -> list[_Target]:
        """Which of them a call that ends then can have read."""
        since = at - timedelta(seconds=LONGEST_CALL_SECONDS)
        ends = [*(began for began, _ in self.targets[1:]), at]
        return [target for (_, target), end in zip(self.targets, ends, strict=True) if end >= since]


def reaction_steps(commits: Iterable[Commit], service: Service) -> Iterator[NotAllowed]:
    """The writes that the model does not allow."""
    replayed = _Replayed(service)
    for commit in commits:
        names = dict.fromkeys(str((now or was or {})["partitionKey"]) for was, now in commit.changes)
        for name in names:
            changes = [each for each in commit.changes if (each[1] or each[0] or {})["partitionKey"] == name]
            for why in replayed.not_allowed(name, commit.at, changes):
                yield NotAllowed(commit, name, why)
        replayed.messages.saw(commit)


class _Replayed:
    """A run, up to now."""

    def __init__(self, service: Service) -> None:
        self.messages = Messages(service)
        self._partitions: dict[str, _Partition] = {}

    def not_allowed(
        self, name: str, at: datetime, changes: list[tuple[Document | None, Document | None]]
    ) -> Iterator[str]:
        """What is wrong with one transaction in this partition."""
        partition = self._partitions.setdefault(name, _Partition())
        written = [now for _, now in changes if now is not None]
        records = [each for each in written if each.get("type") == REACTION_TYPE]
        cursors = {each["id"]: each for each in written if each.get("type") == REACTION_CURSOR_TYPE}
        kinds = {each.to.aggregate_type for each in self.messages.reactions.values()}
        target = next((each for each in written if each.get("type") in kinds), None)
        recorded = set[str]()
        for record in records:
            found = self.messages.of(record)
            assert found is not None, f"{record['id']} at {name} is of no message that was stored"
            recorded.add(found.message.id)
            yield from self._no_step(partition, found, record, cursors, target, at)
            partition.records[record["id"]] = (
                record["data"]["outcome"],
                at + timedelta(seconds=record["ttl"]),
            )
        causes = {each["data"].get("causationId") for each in written if each.get("type") == EVENT_TYPE}
        if causes & self.messages.by_id.keys() - recorded:
            yield "a message changes it without a record (one_batch)"
        partition.cursors |= {each: item["data"]["last"] for each, item in cursors.items()}
        if target is not None:
            partition.targets.append((at, _Target.of(target)))

    def _no_step(
        self,
        partition: _Partition,
        found: Recorded,
        record: Document,
        cursors: dict[str, Document],
        target: Document | None,
        at: datetime,
    ) -> Iterator[str]:
        reaction, message, place = found
        cursor = request_id(f"cursor-{place.cursor}")
        said, until = partition.records.get(record["id"], ("", at))
        moved = cursors[cursor]["data"]["last"] if cursor in cursors else None
        view = _View(record["data"]["outcome"], target is not None, moved)
        if until > at and said != ReactionOutcome.REFUSED:
            yield f"{message.action} {message.sequence} is {said}, and now {view.outcome} (through_the_record)"
            return
        sequence = record["data"]["sequence"]
        seen = [partition.target] if target is not None else partition.seen(at)
        if target is None:
            seen = [each for each in seen if each.sequence == sequence]
        if not seen or (target is not None and _Target.of(target).sequence != sequence):
            yield f"the record of {message.id} has a sequence that its target does not have"
            return
        last = partition.cursors.get(cursor, 0)
        befores = [_Before(each.kind, last, until > at) for each in seen]
        if not any(view in _made(each, reaction.order, message.sequence or 0) for each in befores):
            yield f"no step leads from {befores} to {view}, for message {message.sequence} of {message.aggregate}"


@cache
def _made(before: _Before, order: InOrder, sequence: int) -> frozenset[_View]:
    """What a message, or an operator, can store there, whatever the reaction makes of it."""
    made: set[_View] = set()
    for answer in _ANSWERS:
        for way, does in _WAYS:
            if before.refused and way == "message":
                continue  # it finds the record, and does nothing
            story = Story(answer, messages=sequence, order=order, operator=does)
            log = tuple(range(before.cursor)) if order is not InOrder.ANY else ()
            thing = Thing(before.kind, log, cursor=before.cursor)
            message, refused = sequence - 1, 0 if before.refused else None
            process = Process("read", message, way=way, consistent=True, refused=refused)
            records = ((str(message), ReactionOutcome.REFUSED, 0),) if before.refused else ()
            first = State((process,), ((0,),) * sequence, (thing,), records)
            if way == "operator" and does == "apply" and not before.refused:
                continue
            made |= {*_stored(Model(story), first)}
    return frozenset(made)


def _stored(model: Model, first: State) -> Iterator[_View]:
    seen, waiting = {first}, [first]
    while waiting:
        state = waiting.pop()
        if state.records != first.records:
            [thing, after] = state.history if len(state.history) > 1 else (*state.history, *state.history)
            ordered = model.story.order is not InOrder.ANY
            if not state.problem:
                yield _View(
                    next(each[1] for each in state.records).value,
                    len(after.log) > len(thing.log),
                    after.cursor if ordered else None,
                )
            continue
        for _, after_step in model.successors(state):
            if after_step not in seen:
                seen.add(after_step)
                waiting.append(after_step)
