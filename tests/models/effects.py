"""Effects as a model: two receivers of one session, a timer and an operator, old reads, lost answers, crashes.

Each rule of ``docs/internals/decisions/0018-effects.md`` can be turned off. The events are 1 and 2 of one aggregate.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

RULES = frozenset({
    "record-after", "complete-last", "original-id", "lives-as-long", "started-first", "started-created-only",
    "names-the-call", "look-for-start", "old-start-listed", "young-not-raised", "put-back", "unknown-failure-listed",
    "failure-set-aside", "dead-letters-collected", "goes-behind", "timer-in-order", "aside-then-record",
    "aside-consistent", "record-consistent", "discard-marks", "deadline", "too-old",
})  # fmt: skip

LEFT_OUT = "an effect is left out"
TWICE = "an effect runs twice, and nothing excuses it"
ORDER = "an effect first runs before an earlier one"
NEVER_BEGUN = "listed as may have been done, and never begun"
GIVEN_UP = "an effect that was given up is begun"
HELD_UP = "an effect that was surely not done is listed"

TIMER = 2


class Record(NamedTuple):
    """What became of an event's effect."""

    state: str
    call: str = ""
    tick: int = 0

    @property
    def closed(self) -> bool:
        return self.state in ("done", "discarded")


History = tuple[Record | None, ...]


class Process(NamedTuple):
    at: str = "idle"
    message: int = 0
    call: str = ""
    since: int = 0
    version: int = 1
    """The length of the record's history as it was found."""
    found: Record | None = None
    waits: bool = False
    after_discard: bool = False


class State(NamedTuple):
    done: frozenset[int] = frozenset()
    """The messages that are completed."""
    dead: frozenset[int] = frozenset()
    aside: tuple[str, ...] = ()
    """By message: nothing, waiting, refused or closed."""
    aside_before: tuple[str, ...] = ()
    """What an old read shows."""
    records: tuple[History, ...] = ()
    """By message, or by event."""
    processes: tuple[Process, ...] = (Process(), Process(), Process())
    holder: int | None = None
    ran: tuple[int, ...] = ()
    """Events that were asked for, in order, unless that surely did nothing."""
    listed: frozenset[int] = frozenset()
    given_up: frozenset[int] = frozenset()
    excused: frozenset[int] = frozenset()
    """Of these a process died, or a lock was lost, with the message in hand."""
    tick: int = 0
    aged: bool = False
    fails: int = 0
    deaths: int = 0
    losses: int = 0
    answers: int = 0
    problem: str = ""


@dataclass(frozen=True)
class Story:
    """What can befall the messages, which are events of one session; one that comes again is a copy."""

    messages: tuple[int, ...] = (1, 2)
    repeatable: bool = True
    fails: int = 0
    """How often a handler surely does nothing."""
    unknown: int = 0
    """How often it ends with any other error."""
    deaths: int = 0
    losses: int = 0
    """How often a lock is lost."""
    answers: int = 0
    """How often the answer to a start is lost."""
    ticks: int = 0
    """How often the longest call passes."""
    ages: bool = False
    discards: bool = False
    applies: bool = False
    """Whether an operator runs what is listed."""
    buries: bool = False
    """Whether the broker gives messages up; the order is not promised then."""


@dataclass(frozen=True)
class Model:
    story: Story
    rules: frozenset[str] = RULES

    def initial(self) -> State:
        none = ("",) * len(self.story.messages)
        histories: tuple[History, ...] = ((None,),) * len(none)
        return State(aside=none, aside_before=none, records=histories)

    def wrong(self, state: State) -> str | None:
        if state.problem:
            return state.problem
        for event in set(self.story.messages):
            numbers = [n for n, each in enumerate(self.story.messages) if each == event]
            pending = any(n not in state.done or state.aside[n] == "waiting" for n in numbers)
            known = event in state.ran or event in state.listed or event in state.given_up
            if not pending and not known:
                return LEFT_OUT
        return None

    def successors(self, state: State) -> Iterator[tuple[str, State]]:
        story = self.story
        for number, process in enumerate(state.processes):
            who = f"process {number}" if number != TIMER else "timer"
            for step, reached in self._steps(state, number, process):
                yield f"{who} {step}", reached
            if process.at != "idle" and state.deaths < story.deaths:
                freed = None if state.holder == number else state.holder
                died = self._of(state._replace(holder=freed, deaths=state.deaths + 1), number, Process())
                yield f"{who} dies", died._replace(excused=state.excused | {self._event(process)})
        if state.holder is not None and state.losses < story.losses:
            event = self._event(state.processes[state.holder])
            lost = state._replace(holder=None, losses=state.losses + 1, excused=state.excused | {event})
            yield "the lock is lost", lost
        if state.tick < story.ticks:
            yield "the longest call passes", state._replace(tick=state.tick + 1)
        yield from self._ages(state)
        yield from self._operate(state)
        yield from self._bury(state)

    def _operate(self, state: State) -> Iterator[tuple[str, State]]:
        for number, kept in enumerate(state.aside):
            if self.story.discards and kept in ("waiting", "refused"):
                yield from self._discard(state, number)
            if self.story.applies and kept == "refused":
                yield from self._apply(state, number)

    def _bury(self, state: State) -> Iterator[tuple[str, State]]:
        for number in state.dead:
            if self.rules >= {"dead-letters-collected"} or "young-not-raised" not in self.rules:
                kept = self._aside(state, number, "waiting", create=True)
                yield (
                    "a dead letter is collected",
                    kept._replace(dead=state.dead - {number}, done=state.done | {number}),
                )
            else:
                yield (
                    "a dead letter expires",
                    state._replace(dead=state.dead - {number}, done=state.done | {number}),
                )

    def _ages(self, state: State) -> Iterator[tuple[str, State]]:
        if self.story.ages and not state.aged:
            yield "the messages grow too old", state._replace(aged=True, tick=state.tick + 1)
        if state.aged or "lives-as-long" not in self.rules:
            for place, history in enumerate(state.records):
                if history[-1] is not None:
                    yield "a record expires", self._records(state, place, (*history, None))

    def _discard(self, state: State, number: int) -> Iterator[tuple[str, State]]:
        event, place = self.story.messages[number], self._place(number)
        closed = self._aside(state, number, "closed")
        history = state.records[place]
        found = history[-1]
        if "discard-marks" not in self.rules:
            yield "an operator discards", closed._replace(given_up=state.given_up | {event})
        elif found is not None and found.state == "done":
            yield "an operator closes what is done", closed
        elif found is None or found.state != "started" or found.tick < state.tick:
            marked = self._records(closed, place, (*history, Record("discarded")))
            yield "an operator discards", marked._replace(given_up=state.given_up | {event})

    def _apply(self, state: State, number: int) -> Iterator[tuple[str, State]]:
        place = self._place(number)
        history = state.records[place]
        found = history[-1]
        closed = self._aside(state, number, "closed")
        if found is not None and found.closed:
            yield "an operator closes what is recorded", closed
        elif found is None or found.state != "started" or found.tick < state.tick:
            ran = closed._replace(ran=(*state.ran, self.story.messages[number]))
            yield "an operator runs it", self._records(ran, place, (*history, Record("done", "operator")))

    # -- one process

    def _steps(  # noqa: C901, PLR0912 - one case for each step
        self, state: State, number: int, process: Process
    ) -> Iterator[tuple[str, State]]:
        match process.at:
            case "idle":
                yield from self._begin(state, number)
            case "look":
                yield from self._look(state, number, process)
            case "find":
                yield from self._find(state, number, process)
            case "decide":
                yield from self._decide(state, number, process)
            case "start":
                yield from self._start(state, number, process)
            case "run":
                yield from self._run(state, number, process)
            case "put back":
                if "put-back" in self.rules:
                    yield "puts it back", self._write(state, number, process, "free", "set aside")
                else:
                    yield "leaves its start", self._at(state, number, process, "set aside")
            case "record":
                then = "finish" if "record-after" in self.rules or not self.story.repeatable else "run"
                yield "records it", self._write(state, number, process, "done", then)
            case "set aside":
                kept = self._aside(state, process.message, "waiting", create=True)
                yield "sets it aside", self._at(kept, number, process, "complete")
            case "list":
                create = number != TIMER
                kept = self._aside(state, process.message, "refused", create=create)
                yield "lists it", self._listed(self._at(kept, number, process, "complete"), process)
            case "finish":
                if number == TIMER:
                    state = self._aside(state, process.message, "closed")
                yield "is through", self._at(state, number, process, "complete")
            case "complete":
                yield from self._complete(state, number, process)

    def _begin(self, state: State, number: int) -> Iterator[tuple[str, State]]:
        if number == TIMER:
            waiting = [n for n, each in enumerate(state.aside) if each == "waiting"]
            in_order = sorted(waiting, key=lambda n: (self.story.messages[n], n))
            for each in in_order[:1] if "timer-in-order" in self.rules else in_order:
                yield (
                    f"tries {each}",
                    self._of(state, number, Process("find", each, self._call(each), state.tick)),
                )
            return
        if state.holder is not None:
            return
        left = [n for n in range(len(self.story.messages)) if n not in state.done | state.dead]
        if left:
            message = left[0]
            first = "look" if "aside-then-record" in self.rules else "find"
            begun, call = state._replace(holder=number), self._call(message)
            if "complete-last" not in self.rules:
                begun = begun._replace(done=state.done | {message})
            yield f"receives {message}", self._of(begun, number, Process(first, message, call, state.tick))
            if self.story.buries:
                yield f"does not take {message}: a dead letter", state._replace(dead=state.dead | {message})

    def _call(self, message: int) -> str:
        """Empty: it gets a name of its own with its start."""
        return "" if "names-the-call" in self.rules else f"message {message}"

    def _look(self, state: State, number: int, process: Process) -> Iterator[tuple[str, State]]:
        then = "find" if "aside-then-record" in self.rules else "decide"
        seen = {state.aside} if "aside-consistent" in self.rules else {state.aside, state.aside_before}
        for aside in sorted(seen):
            waits = "waiting" in aside and "goes-behind" in self.rules
            looked = self._at(state, number, process, "set aside" if waits else then)
            yield f"looks at set-aside: {'waits' if waits else 'free'}", looked

    def _find(self, state: State, number: int, process: Process) -> Iterator[tuple[str, State]]:
        history = state.records[self._place(process.message)]
        versions = {len(history)}
        if "record-consistent" not in self.rules and len(history) > 1:
            versions.add(len(history) - 1)
        ahead = number == TIMER or "aside-then-record" in self.rules
        for version in sorted(versions):
            found = history[version - 1]
            looked = process._replace(
                at="decide" if ahead else "look", version=version, found=found, since=state.tick,
                after_discard=self._event(process) in state.given_up,
            )  # fmt: skip
            yield f"finds {found.state if found else 'no record'}", self._of(state, number, looked)

    def _decide(self, state: State, number: int, process: Process) -> Iterator[tuple[str, State]]:
        found, story, rules = process.found, self.story, self.rules
        if found is not None and found.closed:
            yield "leaves it", self._at(state, number, process, "finish")
        elif story.repeatable:
            yield (
                "will run it",
                self._at(state, number, process, "run" if "record-after" in rules else "record"),
            )
        elif found is not None and found.state == "started" and found.call == process.call:
            yield "takes it for its own start", self._at(state, number, process, "run")
        elif found is not None and found.state == "started" and found.tick == state.tick:
            if "young-not-raised" in rules or number == TIMER:
                yield "waits for another call", self._at(state, number, process, "set aside")
            else:
                freed = None if state.holder == number else state.holder
                buried = state._replace(holder=freed, dead=state.dead | {process.message})
                yield "raises until it is dead", self._of(buried, number, Process())
        elif found is not None and found.state == "started":
            then = "list" if "old-start-listed" in rules else "finish"
            yield "finds an old start", self._at(state, number, process, then)
        elif found is None and state.aged and "too-old" in rules:
            yield "finds it too old", self._at(state, number, process, "list")
        else:
            yield (
                "will start it",
                self._at(state, number, process, "start" if "started-first" in rules else "run"),
            )

    def _start(self, state: State, number: int, process: Process) -> Iterator[tuple[str, State]]:
        place = self._place(process.message)
        history = state.records[place]
        newest = history[-1]
        if len(history) != process.version and "started-created-only" in self.rules:
            mine = newest is not None and newest.call == process.call and "look-for-start" in self.rules
            then = process._replace(at="find", call=self._call(process.message))
            if newest is not None and mine:
                then = process._replace(at="run", version=len(history), since=newest.tick)
            yield "is refused", self._of(state, number, then)
            return
        call = process.call or f"{number}, {len(history)}"
        started = self._records(state, place, (*history, Record("started", call, state.tick)))
        ran = process._replace(at="run", call=call, version=len(history) + 1, since=state.tick)
        yield "starts it", self._of(started, number, ran)
        if state.answers < self.story.answers:
            lost = started._replace(answers=state.answers + 1)
            yield "starts it, and its answer is lost", self._of(lost, number, process._replace(call=call))

    def _run(self, state: State, number: int, process: Process) -> Iterator[tuple[str, State]]:
        event, story = self._event(process), self.story
        failed = "set aside" if story.repeatable else "put back"
        if state.tick != process.since and "deadline" in self.rules:
            yield "is too late", self._at(state, number, process, failed)
            return
        done = "finish" if "record-after" not in self.rules and story.repeatable else "record"
        begun = self._begun(state, process)
        yield f"runs {event}", self._at(begun, number, process, done)
        if state.fails < story.fails:
            then = failed if "failure-set-aside" in self.rules or not story.repeatable else "finish"
            not_done = state._replace(fails=state.fails + 1)
            yield f"fails {event}, surely not done", self._at(not_done, number, process, then)
        if state.fails < story.unknown:
            unknown = begun._replace(fails=state.fails + 1)
            then = "list" if "unknown-failure-listed" in self.rules else "put back"
            yield (
                f"runs {event}, and fails",
                self._at(unknown, number, process, then if not story.repeatable else "set aside"),
            )

    def _begun(self, state: State, process: Process) -> State:
        event, problem = self._event(process), state.problem
        excuse = self.story.repeatable and (event in state.excused or self.story.unknown)
        again = event in state.ran and not excuse
        earlier = event > 1 and event - 1 in self.story.messages
        settled = {*state.ran, *state.listed, *state.given_up}
        if process.after_discard:
            problem = GIVEN_UP
        elif again:
            problem = TWICE
        elif earlier and event not in state.ran and event - 1 not in settled and not self.story.buries:
            problem = ORDER
        return state._replace(ran=(*state.ran, event), problem=problem)

    def _listed(self, state: State, process: Process) -> State:
        event, problem = self._event(process), state.problem
        if event not in state.ran and event not in state.excused and not state.aged:
            problem = problem or (HELD_UP if state.fails else NEVER_BEGUN)
        return state._replace(listed=state.listed | {event}, problem=problem)

    def _complete(self, state: State, number: int, process: Process) -> Iterator[tuple[str, State]]:
        if state.holder == number:
            state = state._replace(holder=None, done=state.done | {process.message})
        yield "ends", self._of(state, number, Process())

    # -- parts of a state

    def _event(self, process: Process) -> int:
        return self.story.messages[process.message]

    def _place(self, message: int) -> int:
        """Of the record."""
        if "original-id" not in self.rules:
            return message
        return self.story.messages.index(self.story.messages[message])

    def _write(self, state: State, number: int, process: Process, to: str, then: str) -> State:
        """At the version that was found; what is refused was recorded by another one, or is looked at again."""
        place = self._place(process.message)
        history = state.records[place]
        if len(history) == process.version:
            state = self._records(state, place, (*history, Record(to, process.call, state.tick)))
            process = process._replace(version=process.version + 1)
        elif not self.story.repeatable:
            process, then = process._replace(call=self._call(process.message)), "find"
        return self._at(state, number, process, then)

    def _aside(self, state: State, message: int, to: str, *, create: bool = False) -> State:
        if create and state.aside[message]:
            return state
        changed = (*state.aside[:message], to, *state.aside[message + 1 :])
        return state._replace(aside=changed, aside_before=state.aside)

    @staticmethod
    def _records(state: State, place: int, history: History) -> State:
        return state._replace(records=(*state.records[:place], history, *state.records[place + 1 :]))

    @staticmethod
    def _of(state: State, number: int, process: Process) -> State:
        processes = (*state.processes[:number], process, *state.processes[number + 1 :])
        return state._replace(processes=processes)

    def _at(self, state: State, number: int, process: Process, at: str) -> State:
        return self._of(state, number, process._replace(at=at))
