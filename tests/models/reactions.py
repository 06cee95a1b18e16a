"""A reaction as a model: two instances, copies of one or two messages, another writer, an operator, and time.

What is decided is decided by ``cosmos_outbox.cosmos.inbox.reaction_decision`` itself. What is around it (what is read,
sent, answered and completed, and in which order) is written down here step by step, as
``cosmos_outbox.cosmos.inbox.reactions`` does it. Processes die, answers are lost and reads are old at any time. Each
rule can be turned off. The rules are those of ``docs/internals/decisions/0025-reactions.md``. Time is not counted: the
message grows too old at any time; a record or a tombstone expires after that, when no call is left that found the
message young.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from cosmos_outbox.cosmos.inbox.reaction_decision import (
    Cursor,
    InOrder,
    ReactionOutcome,
    ReactionRecord,
    SeenTarget,
    ToWrite,
    decide,
    discard,
    fingerprint,
)
from cosmos_outbox.inbox.errors import OutOfOrder, ReactionRefused
from cosmos_outbox.inbox.message import Event
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import SYSTEM

RULES = frozenset({
    "one_batch", "created_only", "record_first", "original_id", "name_of_the_reaction", "record_says_which",
    "at_its_version", "decide_anew", "newest_for_a_no", "refusal_recorded", "complete_last", "through_the_record",
    "discard_marks", "overdue_marks", "too_old", "lives_as_long", "deadline", "tombstone_outlives",
    "erased_keeps_records", "cursor", "same_transaction", "next_only", "every_outcome_moves", "discard_in_turn",
})  # fmt: skip

TWICE = "a message is applied twice"
OVERWRITTEN = "another's change is overwritten"
LEFT_OUT = "a message is completed, and nobody knows of an outcome"
OLD_NO = "an old read's no is recorded for good"
CHANGED_ITS_MIND = "a message that was completed without a change is applied"
WRONGLY_DONE = "a message is answered as applied that was not"
OWN_CHANGE = "a message is refused because of its own change"
GIVEN_UP = "a message that was given up is applied"
CAME_BACK = "what was deleted comes back"
OUT_OF_ORDER = "an older message is applied after a newer one"
SKIPPED = "a message before the applied one is left out"
FOR_EVER = "a message waits for ever"

_CREATED = SYSTEM.now()


class Thing(NamedTuple):
    """The target, and the cursor beside it, each with its version."""

    kind: str = "living"
    """Also: absent, deleted."""
    log: tuple[int, ...] = ()
    """The messages that it was changed by."""
    other: bool = False
    """Another writer has changed it."""
    version: int = 0
    cursor: int = 0
    cursor_version: int = 0


class Plan(NamedTuple):
    """A transaction that is to be sent, as often as its answer is lost."""

    outcome: ReactionOutcome
    over: int | None
    cursor: int | None
    change: bool
    seen: Thing


class Process(NamedTuple):
    at: str = "idle"
    message: int = 0
    copy: int = 0
    way: str = "message"
    """Also: timer, operator."""
    consistent: bool = False
    least: int = 0
    """How new its reads are: which of the target's states they may not be older than."""
    since: int = 0
    """The newest state when it began, or renewed its token."""
    refused: int | None = None
    """The version of the record that it was asked to change."""
    plan: Plan | None = None
    in_time: bool = True
    result: str = ""
    lives: int = 1
    """How often it begins."""
    sent: int = 0


class State(NamedTuple):
    processes: tuple[Process, ...]
    copies: tuple[tuple[int, ...], ...]
    """Of each message, how often each copy of it still comes."""
    history: tuple[Thing, ...]
    """All states of the target, which an old read may see."""
    records: tuple[tuple[str, ReactionOutcome, int], ...] = ()
    """Each with its id and version."""
    old: bool = False
    given_up: bool = False
    silent: tuple[int, ...] = ()
    """Messages that were answered as done without a change."""
    problem: str = ""


Steps = Iterator[tuple[str, State]]


@dataclass(frozen=True)
class Story:
    """What can happen beside two instances that receive."""

    react: str = "adds"
    """Also: needs-other (refuses without the other's change), wants-other (nothing without it, or without a target),
    once (refuses what it has), makes (creates the target where there is none)."""
    messages: int = 1
    copies: int = 1
    comes: int = 2
    order: InOrder = InOrder.ANY
    other: bool = False
    operator: str = ""
    """apply, discard, or overdue (which is the timer's)."""
    ages: bool = False
    deletes: bool = False
    instances: int = 2
    exists: bool = False
    """Somebody else has made the target already."""


@dataclass(frozen=True)
class _State:
    last_sequence: int


class _Target:
    """The target as the decision sees it."""

    def __init__(self, thing: Thing) -> None:
        self.thing, self.changed = thing, thing.kind == "absent"

    @property
    def state(self) -> _State:
        return _State(len(self.thing.log))

    def changes(self) -> "_Target | None":
        return self if self.changed else None


def _event(number: int) -> Event:
    return Event(str(number), AggregateKey("source", "1"), "E", number + 1, _CREATED, {})


@dataclass(frozen=True)
class Model:
    """The protocol under these rules."""

    story: Story = Story()
    rules: frozenset[str] = RULES

    def initial(self) -> State:
        kind = "absent" if self.story.react == "makes" and not self.story.exists else "living"
        copies = ((self.story.comes,) * self.story.copies,) * self.story.messages
        processes = (Process(),) * self.story.instances
        if self.story.operator:
            processes += (Process(way="timer" if self.story.operator == "overdue" else "operator"),)
        return State(processes, copies, (Thing(kind),))

    def successors(self, state: State) -> Steps:
        """Each step of a process, of others, and of time."""
        if state.problem:
            return
        for number, process in enumerate(state.processes):
            for step, reached in self._process(state, number, process):
                yield f"{process.way if process.way != 'message' else number + 1}: {step}", reached
        yield from self._others(state)

    def _on(self, rule: str) -> bool:
        return rule in self.rules

    def _process(self, state: State, number: int, process: Process) -> Steps:
        if process.at != "idle" and process.lives > 0:
            yield "dies", _put(state, number, Process(way=process.way, lives=0))
        if process.at not in ("idle", "done") and self.story.ages and process.in_time and state.old:
            yield "is slow", _put(state, number, process._replace(in_time=False))
        match process.at:
            case "idle":
                yield from self._begin(state, number, process)
            case "find":
                yield from self._find(state, number, process)
            case "read":
                yield from self._read(state, number, process)
            case "send":
                yield from self._send(state, number, process)
            case "record":
                record = _with_record(state, self._id(process), ReactionOutcome.APPLIED)
                yield "stores the record", _put(record, number, process._replace(at="done"))
            case "done":
                yield from self._complete(state, number, process)

    def _begin(self, state: State, number: int, process: Process) -> Steps:
        if process.way != "message":
            if process.lives:
                for message in range(self.story.messages):
                    yield from self._asked(state, number, process, message)
            return
        for message, copies in enumerate(state.copies):
            for copy, left in enumerate(copies):
                if left:
                    since = len(state.history) - 1
                    begun = Process("read", message, copy, lives=process.lives, since=since)
                    if state.old and self._on("too_old"):
                        begun = begun._replace(at="find", result="too old")
                    reached = state if self._on("complete_last") else _completed(state, begun)
                    yield f"receives message {message + 1}", _put(reached, number, begun)

    def _asked(self, state: State, number: int, process: Process, message: int) -> Steps:
        begun = process._replace(at="find", message=message, consistent=True, lives=0)
        if self.story.operator == "apply":
            if not self._on("through_the_record"):
                begun = begun._replace(at="read")
            too_old = state.old and self._on("too_old")
            yield (
                f"applies {message + 1}",
                _put(state, number, begun._replace(result="too old" if too_old else "")),
            )
        elif self._on("discard_marks" if process.way == "operator" else "overdue_marks"):
            yield f"gives up {message + 1}", _put(state, number, begun)
        else:
            yield (
                f"closes the copy of {message + 1}",
                _put(state._replace(given_up=True), number, Process(way=process.way, lives=0)),
            )

    def _id(self, process: Process) -> str:
        name = str(process.message)
        if not self._on("original_id"):
            name += f" copy {process.copy}"
        if not self._on("name_of_the_reaction"):
            name += f" by {process.way}"
        return name

    def _find(self, state: State, number: int, process: Process) -> Steps:
        """With a consistent read of its own."""
        found = _record(state, self._id(process))
        gives_up = process.way != "message" and self.story.operator != "apply"
        if found is not None and (process.way == "message" or found[1] is not ReactionOutcome.REFUSED):
            if gives_up and found[1] is not ReactionOutcome.DISCARDED:
                yield "closes the copy as applied", _put(state, number, Process(way=process.way, lives=0))
                return
            yield f"finds it {found[1]}", _put(state, number, process._replace(at="done", result=found[1]))
        elif process.result == "too old":
            yield "sets it aside as too old", _put(state, number, process._replace(at="done"))
        else:
            newest, version = len(state.history) - 1, None if found is None else found[2]
            at = process._replace(at="read", consistent=True, least=newest, since=newest, refused=version)
            yield "finds no record", _put(state, number, at)

    def _read(self, state: State, number: int, process: Process) -> Steps:
        newest = len(state.history) - 1
        oldest = process.least if self._on("newest_for_a_no") else 0
        for place in range(oldest, newest + 1):
            seen = state.history[place]
            read = "reads" if place == newest else "reads an old state"
            for step, reached in self._decided(state, number, process, seen):
                yield f"{read}: {step}", reached

    def _decided(self, state: State, number: int, process: Process, thing: Thing) -> Steps:
        event, record = _event(process.message), None
        target: Any = None if thing.kind in ("absent", "deleted") else _Target(thing)
        seen = SeenTarget(
            target,
            str(thing.version),
            thing.kind == "deleted",
            Cursor(thing.cursor, str(thing.cursor_version)),
        )
        if process.refused is not None:
            record = ReactionRecord(
                ReactionOutcome.REFUSED, fingerprint(event), 0, version=str(process.refused)
            )
        order = self.story.order if self._on("cursor") else InOrder.ANY
        if order is InOrder.EACH and not self._on("next_only"):
            order = InOrder.NEWEST
        write: ToWrite[Any] | None
        try:
            if process.way != "message" and self.story.operator != "apply":
                in_turn = order if self._on("discard_in_turn") else InOrder.NEWEST
                write = discard(seen, event, "", in_turn if order is InOrder.EACH else order, record)
            else:
                consistent = process.consistent or not self._on("newest_for_a_no")
                write = decide(seen, event, self._react, order, record, consistent=consistent)
        except OutOfOrder:
            yield "it waits for its turn", _put(state, number, Process(way=process.way, lives=process.lives))
            return
        except ReactionRefused:
            yield "it is refused again", _put(state, number, process._replace(at="done", result="refused"))
            return
        if write is None:
            yield (
                "it is no change, so looks again",
                _put(state, number, process._replace(at="find", consistent=True)),
            )
            return
        outcome, cursor = write.record.outcome, write.cursor
        if outcome is not ReactionOutcome.APPLIED:
            if not self._on("every_outcome_moves"):
                cursor = None if cursor is None else thing.cursor
            if not self._on("refusal_recorded") and outcome is not ReactionOutcome.DISCARDED:
                yield str(outcome), _put(state, number, process._replace(at="done", result=outcome))
                return
        over = None if write.over is None else int(write.over)
        plan = Plan(outcome, over, cursor, write.changed is not None, thing)
        yield str(outcome), _put(state, number, process._replace(at="send", plan=plan))

    def _react(self, target: Any, event: Event) -> Any:
        if target is None and self.story.react not in ("makes", "wants-other"):
            raise ReactionRefused("there is none")
        thing = Thing("absent") if target is None else target.thing
        says = self._says(thing)
        if self.story.react == "once" and int(event.id) in thing.log:
            says = ReactionOutcome.REFUSED
        if says is ReactionOutcome.REFUSED:
            raise ReactionRefused("as it is")
        made = _Target(thing)
        made.changed = says is ReactionOutcome.APPLIED
        return made

    def _says(self, thing: Thing) -> ReactionOutcome:
        if self.story.react in ("needs-other", "wants-other") and not thing.other:
            return ReactionOutcome.REFUSED if self.story.react == "needs-other" else ReactionOutcome.NOTHING
        return ReactionOutcome.APPLIED

    def _send(self, state: State, number: int, process: Process) -> Steps:
        plan = process.plan
        assert plan is not None, "what is sent was decided"
        if not process.in_time and self._on("deadline"):
            yield "sends nothing any more", _put(state, number, Process(way=process.way, lives=process.lives))
            return
        refusal = self._refusal(state, process, plan)
        again = process._replace(consistent=True, plan=None, least=len(state.history) - 1)
        if refusal == "record":
            if self._on("record_says_which"):
                yield "the record is there", _put(state, number, again._replace(at="find"))
            else:
                yield (
                    "the record is there",
                    _put(state, number, process._replace(at="done", result="applied")),
                )
        elif refusal == "target":
            if not self._on("decide_anew"):
                yield (
                    "refused, taken for done",
                    _put(state, number, process._replace(at="done", result="taken")),
                )
            elif not self._on("record_first") and process.sent:
                yield "refused", _put(state, number, again)._replace(problem=OWN_CHANGE)
            else:
                at = "find" if self._on("created_only") and self._on("one_batch") else "read"
                yield "refused", _put(state, number, again._replace(at=at))
        else:
            stored = self._stored(state, process, plan)
            if process.sent < 1:
                yield "stored, answer lost", _put(stored, number, process._replace(sent=process.sent + 1))
                yield "not stored, answer lost", _put(state, number, process._replace(sent=process.sent + 1))
            at = "done" if self._on("one_batch") or not plan.change else "record"
            yield "stored", _put(stored, number, process._replace(at=at, result=plan.outcome))

    def _refusal(self, state: State, process: Process, plan: Plan) -> str:
        """By what the store refuses it: the first operation that fails."""
        now = state.history[-1]
        found = _record(state, self._id(process))
        of_record = (found is not None) if plan.over is None else (found is None or found[2] != plan.over)
        if not self._on("created_only") or (not self._on("one_batch") and plan.change):
            of_record = False
        if process.way == "operator" and not self._on("through_the_record"):
            of_record = False
        of_target = plan.cursor is not None and plan.seen.cursor_version != now.cursor_version
        if not self._on("same_transaction"):
            of_target = False
        if plan.change and (self._on("at_its_version") or now.kind == "deleted"):
            of_target = of_target or plan.seen.version != now.version
        if not self._on("record_first") and of_target:
            return "target"
        return "record" if of_record else "target" if of_target else ""

    def _stored(self, state: State, process: Process, plan: Plan) -> State:
        now, message = state.history[-1], process.message
        after, problem = now, ""
        if plan.cursor is not None and self._on("same_transaction"):
            after = after._replace(cursor=plan.cursor, cursor_version=now.cursor_version + 1)
        if plan.change:
            base = now if self._on("at_its_version") else plan.seen
            after = after._replace(
                kind="living", log=(*base.log, message), other=base.other, version=now.version + 1
            )
            problem = self._wrong(state, process, plan, after)
        reached = state
        if (self._on("one_batch") or not plan.change) and (
            process.way != "operator" or self._on("through_the_record")
        ):
            reached = _with_record(state, self._id(process), plan.outcome)
        if plan.outcome is ReactionOutcome.REFUSED:
            had_it = message in now.log and _record(state, str(message)) is None
            an_old_no = self._says(state.history[process.since]) is ReactionOutcome.APPLIED
            problem = OWN_CHANGE if had_it else OLD_NO if an_old_no and now.kind == "living" else ""
        if plan.outcome is ReactionOutcome.DISCARDED:
            reached = reached._replace(given_up=True)
            if self.story.order is InOrder.EACH and plan.cursor is not None and after.cursor <= message:
                problem = problem or FOR_EVER
            if self.story.order is InOrder.EACH and message > now.cursor:
                problem = problem or SKIPPED
        history = reached.history if after == now else (*reached.history, after)
        return reached._replace(history=history, problem=problem)

    def _wrong(self, state: State, process: Process, plan: Plan, after: Thing) -> str:
        now, message = state.history[-1], process.message
        log = after.log
        broken = {
            CAME_BACK: now.kind == "absent" and any(each.kind == "deleted" for each in state.history),
            OVERWRITTEN: now.other and not after.other,
            TWICE: message in now.log or len(set(log)) < len(log),
            GIVEN_UP: state.given_up and self.story.messages == 1,
            CHANGED_ITS_MIND: message in state.silent and process.way == "message",
            OUT_OF_ORDER: self.story.order is not InOrder.ANY and list(log) != sorted(log),
            SKIPPED: self.story.order is InOrder.EACH
            and not state.given_up
            and set(range(message)) > set(log[: log.index(message)])
            and not any(record[1] is not ReactionOutcome.APPLIED for record in state.records),
        }
        return next((problem for problem, found in broken.items() if found), "")

    def _complete(self, state: State, number: int, process: Process) -> Steps:
        result, message = process.result, process.message
        found = _record(state, self._id(process))
        reached = state if process.way != "message" else _completed(state, process)
        if result == "applied" and message not in state.history[-1].log and not state.old:
            reached = reached._replace(problem=WRONGLY_DONE)
        elif result == "taken" and found is None:
            reached = reached._replace(problem=LEFT_OUT)
        elif result in ("nothing", "refused") and process.way == "message":
            reached = reached._replace(silent=tuple(sorted({*reached.silent, message})))
        yield "completes it", _put(reached, number, Process(way=process.way, lives=process.lives))

    def _others(self, state: State) -> Steps:
        now = state.history[-1]
        if self.story.other and not now.other and now.kind == "living":
            yield "another writer changes the target", _next(state, now._replace(other=True))
        if (
            self.story.deletes
            and now.kind == "living"
            and not any(x.kind == "deleted" for x in state.history)
        ):
            deleted = _next(state, now._replace(kind="deleted"))
            yield "the target is deleted", deleted
            if not self._on("erased_keeps_records"):
                gone = deleted._replace(records=())
                yield "the target is erased", _next(gone, gone.history[-1]._replace(kind="absent"))
        if self.story.ages and not state.old:
            yield "the message grows too old", state._replace(old=True)
        if self.story.ages:
            yield from self._expiry(state, now)
        if not self._on("complete_last"):
            yield from self._at_the_end(state)

    def _at_the_end(self, state: State) -> Steps:
        if all(each.at == "idle" for each in state.processes) and not any(map(any, state.copies)):
            for message in range(self.story.messages):
                if _record(state, str(message)) is None:
                    yield "nothing comes any more", state._replace(problem=LEFT_OUT)

    def _expiry(self, state: State, now: Thing) -> Steps:
        in_time = any(
            each.at != "idle" and each.in_time and each.result != "too old" for each in state.processes
        )
        over = state.old and not in_time
        if over or not self._on("lives_as_long"):
            for record in state.records:
                left = tuple(each for each in state.records if each != record)
                yield "the record expires", state._replace(records=left)
        if now.kind == "deleted" and (over or not self._on("tombstone_outlives")):
            yield "the tombstone expires", _next(state, now._replace(kind="absent"))


def _put(state: State, number: int, process: Process) -> State:
    processes = list(state.processes)
    processes[number] = process
    return state._replace(processes=tuple(processes))


def _next(state: State, thing: Thing) -> State:
    return state._replace(history=(*state.history, thing._replace(version=thing.version + 1)))


def _completed(state: State, process: Process) -> State:
    copies = [list(each) for each in state.copies]
    copies[process.message][process.copy] = max(0, copies[process.message][process.copy] - 1)
    return state._replace(copies=tuple(map(tuple, copies)))


def _record(state: State, name: str) -> tuple[str, ReactionOutcome, int] | None:
    return next((each for each in state.records if each[0] == name), None)


def _with_record(state: State, name: str, outcome: ReactionOutcome) -> State:
    before = _record(state, name)
    others = [each for each in state.records if each[0] != name]
    version = 0 if before is None else before[2] + 1
    return state._replace(records=tuple(sorted([*others, (name, outcome, version)])))


def any_problem(state: State) -> str | None:
    """What is wrong, if anything is."""
    return state.problem or None


def only(problem: str) -> Callable[[Any], str | None]:
    """This problem alone."""
    return lambda state: problem if state.problem == problem else None
