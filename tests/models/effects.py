"""Effects as a model: two calls, a sweep and an operator, with old reads, lost answers, crashes, and time.

What is decided is decided by ``cosmos_outbox.inbox.effect_decision`` itself. What is around it (what is read, asked,
written, run and completed, and in which order) is written down here step by step, as ``cosmos_outbox.inbox.effects``
does it. Each rule can be turned off. The rules are those of ``docs/internals/decisions/0018-effects.md``.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from cosmos_outbox.inbox.effect import CALL, EffectItem, EffectRules, HeldBack, WhyOpen
from cosmos_outbox.inbox.effect_decision import AskSource, By, EffectCall, EffectChange
from cosmos_outbox.inbox.errors import EffectRefused, InboxError
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import SYSTEM

RULES = frozenset({
    "start-first", "record-after", "at-its-version", "decide-again", "complete-last", "look-for-start", "young-runs",
    "fresh-start", "calls-end", "take-over", "put-back", "ask-between", "gone-is-told", "absence-fenced",
    "discards-asked", "published-only", "sweep", "old-skips-written", "sweep-leaves-gone", "begin-at", "first-is-kept",
    "other-event", "too-old", "open-stays", "only-next", "age-gives-up",
})  # fmt: skip

LEFT_OUT = "an effect is left out, and nobody is told"
TWICE = "an effect is begun twice, and no process died"
BESIDE = "an effect is begun while another of its aggregate runs"
ORDER = "an effect is begun before one that comes first"
NEVER_BEGUN = "told as may have been handled, and never begun"
WRONGLY_MISSING = "told as missing, and it is not"
HELD_UP = "an aggregate is held up for ever"
GIVEN_UP = "an effect that was given up, or is not for this subscriber, is run"
FORGOTTEN = "what an operator had to know is forgotten"

BEGAN = SYSTEM.now()
KEY = AggregateKey("thing", "7")
LIMITS = EffectRules(timedelta(days=10), timedelta(days=40), frozenset({"e"}))


@dataclass(frozen=True)
class Story:
    """What happens: the events by place ("e" has an effect, "n" none), and what can befall them."""

    events: str = "ee"
    lost: frozenset[int] = frozenset()
    """Their messages never come."""
    comes: int = 1
    """How often each message comes after it was completed."""
    old_reads: bool = False
    answers_lost: int = 0
    deaths: int = 0
    fails: int = 0
    ticks: int = 0
    """How often the longest call passes."""
    sweeps: int = 0
    expires: frozenset[int] = frozenset()
    """Documents that expire at any time."""
    late: frozenset[int] = frozenset()
    """Messages that come only after the documents have expired."""
    discarded: frozenset[int] = frozenset()
    """Given up by the publisher's operator, whose notice has not come."""
    parked: int = 0
    """The relay holds back later places than this one; 0: none."""
    begin: int = 1
    """Earlier events are from before the subscriber's time."""
    aged: int = 0
    """How often an item may expire after so long that the messages are too old."""
    restored: bool = False
    """Another event is stored in the last place, after the aggregate has come there."""
    gives_up: int = 0
    """An operator, or age, gives up this place."""
    always_fails: int = 0
    again: int = 0
    """An operator has this place run again, when it is told as one that may have been handled."""
    repeatable: bool = True
    calls: int = 2
    tries: int = 5


class Process(NamedTuple):
    at: str = "idle"
    place: int = 0
    by: By = By.MESSAGE
    name: str = ""
    item: EffectItem | None = None
    fenced: bool = False
    known: bool | None = None
    """Whether the source was asked behind a fence; None: it was not asked."""
    seen: frozenset[int] = frozenset()
    held: HeldBack = HeldBack()
    change: EffectChange | None = None
    other: bool = False
    refused: int = 0


class State(NamedTuple):
    processes: tuple[Process, ...]
    comes: tuple[int, ...]
    tries: int
    history: tuple[EffectItem | None, ...] = (None,)
    docs: frozenset[int] = frozenset()
    tick: int = 0
    calls: int = 0
    begun: tuple[int, ...] = ()
    excused: frozenset[int] = frozenset()
    died: frozenset[int] = frozenset()
    settled: frozenset[int] = frozenset()
    """Told to somebody, given up, or not for this subscriber."""
    gone: frozenset[int] = frozenset()
    lost_answers: int = 0
    deaths: int = 0
    fails: int = 0
    sweeps: int = 0
    aged: int = 0
    restored: bool = False
    gave_up: bool = False
    again: bool = False
    problem: str = ""


Steps = Iterator[tuple[str, State]]


@dataclass(frozen=True)
class Model:
    story: Story
    rules: frozenset[str] = RULES

    def initial(self) -> State:
        story = self.story
        places = range(1, len(story.events) + 1)
        return State(
            (Process(),) * story.calls,
            tuple(0 if place in story.lost else story.comes for place in places),
            story.tries,
            docs=frozenset(places),
            settled=frozenset(each for each in places if each < story.begin or 0 < story.parked < each)
            | story.discarded,
        )

    def on(self, rule: str) -> bool:
        return rule in self.rules

    def event(self, place: int, *, other: bool = False) -> Event:
        age = timedelta(hours=1) if place < self.story.begin else timedelta()
        made = BEGAN + timedelta(minutes=5) if other else BEGAN - age
        kind = self.story.events[place - 1 : place] or "n"
        return Event(f"{'x' if other else 'e'}{place}", KEY, kind, place, made, {})

    def limits(self) -> EffectRules:
        begin = BEGAN if self.story.begin > 1 and self.on("begin-at") else None
        return replace(LIMITS, repeatable=self.story.repeatable, begin=begin)

    def successors(self, state: State) -> Steps:
        if state.problem:
            return
        for number, process in enumerate(state.processes):
            yield from self._of(state, number, process)
        yield from self._around(state)

    def _around(self, state: State) -> Steps:
        story, busy = self.story, [each for each in state.processes if each.at != "idle"]
        slow = {"begin": "fresh-start", "runs": "calls-end", "record": "calls-end"}
        held = [each for each in busy if each.at not in slow or self.on(slow[each.at])]
        newest = state.history[-1]
        if (
            state.tick < story.ticks
            and not held
            and newest is not None
            and newest.is_running(self._now(state))
        ):
            yield "the longest call passes", state._replace(tick=state.tick + 1, tries=story.tries)
        for place in story.expires & state.docs:
            yield (
                f"document {place} expires",
                state._replace(docs=state.docs - {place}, gone=state.gone | {place}),
            )
        item = state.history[-1]
        if not busy and item is not None and state.aged < story.aged and self._may_expire(item):
            lost = any(each.sequence in self._with_effect() for each in item.open)
            problem = FORGOTTEN if lost else state.problem
            after = state._replace(history=(None,), aged=state.aged + 1, docs=frozenset(), problem=problem)
            yield "the item expires", after
        last = len(story.events)
        if story.restored and not state.restored and item is not None and item.last >= last and not busy:
            comes = (*state.comes[:-1], 1)
            yield (
                "the store is restored, and another event stored",
                state._replace(
                    restored=True, comes=comes, tries=3, begun=tuple(each for each in state.begun)
                ),
            )
        if story.gives_up and not state.gave_up and not busy:
            yield from self._give_up(state)

    def _may_expire(self, item: EffectItem) -> bool:
        return item.running is None and (item.expires or not self.on("open-stays"))

    def _give_up(self, state: State) -> Steps:
        if not self.on("age-gives-up"):
            return
        item, place = state.history[-1], self.story.gives_up
        event = self.event(place)
        docs = {each: self.event(each) for each in state.docs}
        if not self.on("only-next"):
            after = (item or EffectItem(0, 1, BEGAN)).after(place, BEGAN, event.id, event.created_at)
            given = state._replace(history=(*state.history, self._versioned(state, after)), gave_up=True)
            yield "gives up", given._replace(settled=state.settled | {place})
            return
        call = EffectCall(
            self.limits(), True, By.GIVING_UP, "op", place, event, self._now(state), item, docs, proven=True
        )
        step = call.step()
        if isinstance(step, EffectChange) and step.run is None:
            history = (*state.history, self._versioned(state, step.item))
            yield (
                f"gives up {place}",
                state._replace(
                    history=history, gave_up=True, settled=state.settled | {place}, tries=self.story.tries
                ),
            )

    def _now(self, state: State) -> datetime:
        if state.restored:
            return BEGAN + timedelta(minutes=10)
        return BEGAN + LIMITS.items_live if state.aged else BEGAN + state.tick * CALL

    def _of(self, state: State, number: int, process: Process) -> Steps:
        def put(changed: Process, after: State = state) -> State:
            processes = (*after.processes[:number], changed, *after.processes[number + 1 :])
            return after._replace(processes=processes)

        who = "AB"[number]
        if process.at != "idle" and state.deaths < self.story.deaths:
            after = state._replace(deaths=state.deaths + 1)
            if process.at in ("begin", "runs", "record") and process.change and process.change.run:
                place = process.change.run.sequence or 0
                after = after._replace(excused=state.excused | {place}, died=state.died | {place})
            yield f"{who} dies", put(Process(), after)
        if process.at == "idle":
            yield from ((f"{who}: {step}", put(made, after)) for step, made, after in self._begin(state))
        elif process.at == "read":
            versions = [state.history[-1]] if process.fenced or not self.story.old_reads else state.history
            for version in dict.fromkeys(versions):
                yield from (
                    (f"{who}: {step}", put(made, after))
                    for step, made, after in self._decided(state, process._replace(item=version))
                )
        else:
            does = {
                "write": self._write,
                "look": self._look,
                "begin": self._run,
                "runs": self._end,
                "record": self._record,
            }
            yield from (
                (f"{who}: {step}", put(made, after)) for step, made, after in does[process.at](state, process)
            )

    def _begin(self, state: State) -> Iterator[tuple[str, Process, State]]:
        story, name = self.story, f"call {state.calls}"
        for place, count in enumerate(state.comes, start=1):
            before = [state.comes[each - 1] for each in story.late if each < place]
            late = place in story.late and (not story.expires <= state.gone or any(before))
            if count and state.tries and not late:
                after = state._replace(tries=state.tries - 1, calls=state.calls + 1)
                if not self.on("complete-last"):
                    after = self._completed(after, place)
                other = state.restored and place == len(story.events)
                yield f"receives {place}", Process("read", place, name=name, other=other), after
        if self.on("sweep") and state.sweeps < story.sweeps and (state.docs or story.late):
            after = state._replace(sweeps=state.sweeps + 1, calls=state.calls + 1)
            yield "sweeps", Process("read", len(story.events), By.SWEEP, name), after
        newest = state.history[-1]
        if not state.again and newest is not None and story.again in (each.sequence for each in newest.open):
            after = state._replace(again=True, calls=state.calls + 1, tries=story.tries)
            yield (
                f"asks for {story.again} again",
                Process("read", story.again, By.OPERATOR, name, fenced=True),
                after,
            )

    def _completed(self, state: State, place: int) -> State:
        comes = (*state.comes[: place - 1], max(0, state.comes[place - 1] - 1), *state.comes[place:])
        return state._replace(comes=comes)

    def _call(self, state: State, process: Process) -> EffectCall:
        place, event = process.place, None
        if process.by is By.SWEEP and not self.on("sweep-leaves-gone"):
            place, event = place + 1, self.event(place + 1)
        elif process.by is not By.SWEEP:
            event = self.event(place, other=process.other)
        return EffectCall(
            self.limits(), True, process.by, process.name, place, event, self._now(state), process.item,
            {each: self.event(each) for each in process.seen}, process.held, process.known,
        )  # fmt: skip

    def _decided(  # noqa: C901, PLR0912 - a branch for each kind of step, and for each rule that is off
        self, state: State, process: Process
    ) -> Iterator[tuple[str, Process, State]]:
        """Decide, and ask the source until nothing is left to be asked."""
        call = self._call(state, process)
        event, limits = call.event, call.rules
        young = not (state.gone and self.on("old-skips-written"))
        if event is not None and process.by is By.MESSAGE and not limits.has_effect(event) and young:
            yield "has no effect", Process(), self._completed(state, process.place)
            return
        now, item = call.now, call.item
        running = item.running if item else None
        if running is not None and running.by != process.name:
            if not self.on("young-runs"):
                now = running.at + CALL
            if not self.on("take-over"):
                now = running.at
        if not self.on("too-old"):
            limits = replace(limits, items_live=timedelta(days=4000))
        if item is not None and not self.on("first-is-kept"):
            item = replace(item, first=1)
        if item is not None and not self.on("other-event"):
            item = replace(item, last_event_id="", at=BEGAN + timedelta(days=1))
        match step := replace(call, item=item, rules=limits, now=now).step():
            case InboxError() if not process.fenced:
                yield from self._decided(state, self._read(process, state.history[-1]))
            case EffectRefused():
                told = state._replace(settled=state.settled | {process.place})
                yield "is refused", Process(), self._completed(told, process.place)
            case InboxError():
                yield "raises", Process(), state
            case None:
                done = self._completed(state, process.place) if process.by is By.MESSAGE else state
                if process.other:
                    done = done._replace(problem=LEFT_OUT)
                yield "is done", Process(), done
            case AskSource():
                for asked in self._asked(state, process, step):
                    yield from self._decided(state, asked)
            case EffectChange():
                if step.run is not None and not self.on("start-first"):
                    yield "starts without a word", process._replace(at="begin", change=step), state
                else:
                    yield "decides", process._replace(at="write", change=self._without_rules(step)), state

    def _read(self, process: Process, item: EffectItem | None) -> Process:
        """Behind a fence; what was asked of the source before is forgotten."""
        return process._replace(item=item, fenced=True, known=None, seen=frozenset(), held=HeldBack())

    def _without_rules(self, step: EffectChange) -> EffectChange:
        item = step.item
        if not self.on("gone-is-told"):
            item = replace(item, open=tuple(each for each in item.open if each.why is not WhyOpen.MISSING))
        if step.run is not None and not self.on("record-after"):
            item = self._recorded(item, step.run, item.at)
        return replace(step, item=item)

    def _recorded(self, item: EffectItem, event: Event, at: datetime) -> EffectItem:
        return item.after(event.sequence or 1, at, event.id, event.created_at)

    def _asked(self, state: State, process: Process, ask: AskSource) -> Iterator[Process]:
        """What is to be run is told with what the relay holds back of it."""
        gone = frozenset(f"e{each}" for each in self.story.discarded if self.on("discards-asked"))
        after = self.story.parked if self.story.parked and self.on("published-only") else None
        if not self.on("ask-between"):
            skipped = process.item or EffectItem(0, 1, BEGAN)
            yield process._replace(item=replace(skipped, last=ask.places.stop - 1))
        else:
            asked = process._replace(known=ask.fenced or not self.on("absence-fenced"))
            shown = state.docs & frozenset(ask.places)
            older = [shown, shown - {max(shown)}, frozenset()] if shown else [shown]
            for each in dict.fromkeys(older if not ask.fenced and self.story.old_reads else [shown]):
                seen = process.seen | each
                runs = any(self.limits().has_effect(self.event(place)) for place in seen)
                yield asked._replace(seen=seen, held=HeldBack(after, gone) if runs else HeldBack())

    def _versioned(self, state: State, item: EffectItem) -> EffectItem:
        return replace(
            item, version=str(sum(each is not None for each in state.history) + 1 + 100 * state.aged)
        )

    def _write(self, state: State, process: Process) -> Iterator[tuple[str, Process, State]]:
        change, newest = process.change, state.history[-1]
        assert change is not None
        if change.item.version != (newest.version if newest else None) and self.on("at-its-version"):
            if not self.on("decide-again"):
                yield "is refused, taken for done", Process(), self._completed(state, process.place)
            elif process.refused < 2:
                yield from self._decided(
                    state, self._read(process, newest)._replace(refused=process.refused + 1)
                )
            else:
                yield "raises", Process(), state
            return
        item = self._versioned(state, change.item)
        stored = self._told(state._replace(history=(*state.history, item)), newest, item, process.by)
        if change.run is None:
            if process.by is By.MESSAGE and item.last >= process.place:
                stored = self._completed(stored, process.place)
            yield "passes", Process(), stored
        else:
            yield "starts", process._replace(at="begin", change=replace(change, item=item)), stored
        if state.lost_answers < self.story.answers_lost:
            lost = stored._replace(lost_answers=state.lost_answers + 1)
            if change.run is not None and self.on("look-for-start"):
                yield "starts, answer lost", process._replace(at="look"), lost
            else:
                yield "stored, answer lost: raises", Process(), lost

    def _told(self, state: State, before: EffectItem | None, item: EffectItem, by: By) -> State:
        problem, settled = state.problem, state.settled
        for each in set(item.open) - set(before.open if before else ()):
            settled |= {each.sequence}
            if each.why is WhyOpen.UNSURE and each.sequence not in (*state.begun, *state.died):
                problem = problem or NEVER_BEGUN
            if each.why is WhyOpen.MISSING:
                next_in_broker = by is By.SWEEP and state.comes[each.sequence - 1]
                no_effect = self.story.events[each.sequence - 1] == "n"
                if each.sequence in state.docs or no_effect or next_in_broker:
                    problem = problem or WRONGLY_MISSING
        return state._replace(settled=settled, problem=problem)

    def _look(self, state: State, process: Process) -> Iterator[tuple[str, Process, State]]:
        newest, change = state.history[-1], process.change
        assert change is not None
        if newest is not None and newest.running == change.item.running:
            yield "finds its start", process._replace(at="begin", change=replace(change, item=newest)), state
        else:
            yield from self._decided(state, self._read(process, newest))

    def _run(self, state: State, process: Process) -> Iterator[tuple[str, Process, State]]:
        change = process.change
        assert change is not None
        assert change.run is not None
        running = change.item.running
        if running is not None and running.at < self._now(state) and self.on("fresh-start"):
            yield "is too late to begin", Process(), state
            return
        place = change.run.sequence or 0
        problem = state.problem
        by_itself = not self.story.repeatable and process.by is not By.OPERATOR
        if place in state.begun and (by_itself or place not in state.excused):
            problem = TWICE
        first = change.item.first
        before = [each for each in self._with_effect() if first <= each < place and each not in state.settled]
        if any(each not in state.begun for each in before):
            problem = ORDER
        if (
            place in self.story.discarded
            or place < self.story.begin
            or (self.story.parked and place > self.story.parked)
        ):
            problem = GIVEN_UP
        if any(each.at in ("runs", "record") for each in state.processes):
            problem = BESIDE
        begun = state._replace(begun=(*state.begun, place), problem=problem)
        yield f"begins {place}", process._replace(at="runs"), begun

    def _end(self, state: State, process: Process) -> Iterator[tuple[str, Process, State]]:
        change = process.change
        assert change is not None
        assert change.run is not None
        place = change.run.sequence or 0
        if place != self.story.always_fails:
            yield "its effect ends", process._replace(at="record"), state
        if state.fails < self.story.fails or place == self.story.always_fails:
            failed = state._replace(
                fails=state.fails + 1,
                excused=state.excused | {place},
                begun=tuple(each for each in state.begun if each != place),
            )
            newest = state.history[-1]
            if self.on("put-back") and newest is not None and newest.running == change.item.running:
                back = self._versioned(failed, replace(newest, running=None))
                failed = failed._replace(history=(*failed.history, back))
            yield "its effect surely failed", Process(), failed

    def _record(self, state: State, process: Process) -> Iterator[tuple[str, Process, State]]:
        change, newest = process.change, state.history[-1]
        assert change is not None
        assert change.run is not None
        if not self.on("record-after"):
            yield from self._decided(state, process._replace(item=newest, fenced=True))
            return
        if not self.on("start-first"):
            newest = newest or EffectItem(0, 1, BEGAN)
        elif newest is None or newest.running != change.item.running:
            yield "took too long: raises", Process(), state
            return
        item = self._versioned(state, self._recorded(newest, change.run, change.item.at))
        stored = state._replace(history=(*state.history, item))
        done = self._read(process, item)._replace(change=None)
        yield from self._decided(stored, done)
        if state.lost_answers < self.story.answers_lost:
            yield from self._decided(stored._replace(lost_answers=state.lost_answers + 1), done)

    def _with_effect(self) -> list[int]:
        return [place for place, kind in enumerate(self.story.events, start=1) if kind == "e"]

    def wrong(self, state: State) -> str | None:
        """What is wrong; at the end, what is left out or held up."""
        if state.problem:
            return state.problem
        idle = all(each.at == "idle" for each in state.processes)
        if not idle or any(True for _ in self.successors(state)):
            return None
        left = [
            place for place in self._with_effect() if place not in state.begun and place not in state.settled
        ]
        comes = [place for place, count in enumerate(state.comes, start=1) if count]
        if left and comes and not state.tries:
            fate = state.history[-1]
            stuck = (fate is not None and fate.running is not None) or self.story.always_fails
            return HELD_UP if stuck and self.story.ticks + self.story.always_fails else None
        return LEFT_OUT if left and not comes else None
