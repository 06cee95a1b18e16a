"""An effect that may have been handled, and two operators who want it run again, as a model.

What a call writes is what ``cosmos_outbox.inbox.effect_operator`` decides; in which order it reads, writes, runs and
records is written down here. Processes die, effects fail and answers are lost at any time. Each rule can be turned off.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import NamedTuple

from cosmos_outbox.inbox.effect import EffectRules, Mark, MarkState
from cosmos_outbox.inbox.effect_decision import EffectCall
from cosmos_outbox.inbox.effect_operator import claimed, ended
from cosmos_outbox.inbox.errors import EffectNotDone, EffectRunning, NotSetAside
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.kernel.aggregate_key import AggregateKey


class Rule(Enum):
    """A rule of the protocol. Turned off, the search must find what the rule is for."""

    CLAIM_FIRST = "claim-first"
    CLAIM_HOLDS = "claim-holds"
    AT_ITS_VERSION = "at-its-version"
    CALLS_END = "calls-end"
    FRESH_START = "fresh-start"
    RECORD_AFTER = "record-after"


_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_EARLIER = _NOW - timedelta(hours=1)
_DAYS = timedelta(days=100)
RULES = EffectRules(5 * _DAYS, 6 * _DAYS, _DAYS)
EVENT = Event("1", AggregateKey("thing", "1"), "E", 1, _NOW, {})
UNSURE = Mark("1", MarkState.UNCERTAIN, 1, _EARLIER, kept=EVENT, version="0")


class Doing(NamedTuple):
    """Where an operator's call is. ``seen``: the mark as it was read, or as the call wrote it last."""

    step: str
    seen: Mark
    late: bool = False
    """The longest call is over since the call decided to claim."""


class World(NamedTuple):
    """A state of the model."""

    mark: Mark = UNSURE
    calls: tuple[Doing | None, ...] = (None, None)
    asked: tuple[int, ...] = (2, 2)
    """How often each operator will still call."""
    runs: int = 0
    excused: int = 0
    """Runs after which a process died, or a record was lost, or the effect itself failed."""
    losses_left: int = 1
    failures_left: int = 1


@dataclass(frozen=True)
class Model:
    """The steps; ``off`` is the rule that is not kept."""

    off: Rule | None = None

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        """Every next state."""
        running = any(call and call.step == "record" for call in world.calls)
        if world.mark.by and world.mark.at == _NOW and (not running or self.off is Rule.CALLS_END):
            old = replace(world.mark, at=_EARLIER)
            slow = tuple(call and call._replace(late=True) for call in world.calls)
            yield "the longest call is over", world._replace(mark=old, calls=slow)
        for who, call in enumerate(world.calls):
            if call is None:
                if world.asked[who]:
                    left = tuple(each - (number == who) for number, each in enumerate(world.asked))
                    yield (
                        f"{who} calls",
                        self._with(world._replace(asked=left), who, Doing("claim", world.mark)),
                    )
                continue
            yield from getattr(self, f"_{call.step}")(world, who, call)
            if world.losses_left:
                yield f"{who} dies", self._with(_lost(world, call), who, None)

    def _claim(self, world: World, who: int, call: Doing) -> Iterator[tuple[str, World]]:
        mark = call.seen
        if mark.state is not MarkState.UNCERTAIN:
            yield f"{who} finds it over", self._with(world, who, None)
            return
        if self.off is Rule.CLAIM_HOLDS:
            mark = replace(mark, by="")
        try:
            wanted = claimed(mark, EffectCall(_NOW, str(who)), RULES)
        except EffectRunning:
            yield f"{who} is told that it runs", self._with(world, who, None)
            return
        if self.off is Rule.CLAIM_FIRST:
            yield f"{who} runs without a claim", self._with(world, who, Doing("run", mark, call.late))
            return
        if call.seen != world.mark and self.off is not Rule.AT_ITS_VERSION:
            yield f"{who} is refused, and reads again", self._with(world, who, Doing("claim", world.mark))
            return
        stored = self._stored(world, replace(wanted, at=_EARLIER if call.late else _NOW))
        yield f"{who} claims", self._with(stored, who, Doing("run", stored.mark, call.late))

    def _run(self, world: World, who: int, call: Doing) -> Iterator[tuple[str, World]]:
        if call.late and self.off is not Rule.FRESH_START:
            yield f"{who} is too slow to run it", self._with(world, who, None)
            return
        if self.off is Rule.RECORD_AFTER:
            early = self._recorded(world, who, call, None)
            yield f"{who} records too early", self._with(early, who, Doing("late_run", call.seen))
            return
        ran = world._replace(runs=world.runs + 1)
        yield f"{who} runs it", self._with(ran, who, call._replace(step="record"))
        if world.failures_left:
            failed = ran._replace(failures_left=world.failures_left - 1, excused=world.excused + 1)
            yield (
                f"{who} runs it, and it fails",
                self._with(self._recorded(failed, who, call, EffectNotDone("no")), who, None),
            )

    def _late_run(self, world: World, who: int, _: Doing) -> Iterator[tuple[str, World]]:
        """With the rule off: the effect runs after its record."""
        yield f"{who} runs it", self._with(world._replace(runs=world.runs + 1), who, None)

    def _record(self, world: World, who: int, call: Doing) -> Iterator[tuple[str, World]]:
        yield f"{who} records it", self._with(self._recorded(world, who, call, None), who, None)

    def _recorded(self, world: World, who: int, call: Doing, failure: Exception | None) -> World:
        mark = call.seen if self.off is Rule.CLAIM_FIRST else world.mark
        try:
            by = mark.by if self.off is Rule.CLAIM_FIRST else str(who)
            return self._stored(world, replace(ended(mark, by, _NOW, failure, "r"), at=_EARLIER))
        except NotSetAside:
            return world  # another call answers for it

    def _stored(self, world: World, mark: Mark) -> World:
        version = str(int(world.mark.version or "0") + 1)
        return world._replace(mark=replace(mark, failures=0, reason="", version=version))

    @staticmethod
    def _with(world: World, who: int, call: Doing | None) -> World:
        return world._replace(
            calls=tuple(call if each == who else old for each, old in enumerate(world.calls))
        )

    def wrong(self, world: World) -> str | None:
        """What is wrong with a state."""
        if world.runs > world.excused + 1:
            return "it runs twice, and no process died, no record was lost and no effect failed"
        over = world.mark.state is MarkState.HANDLED
        if over and not world.runs:
            return "it is recorded as handled, and nobody ran it"
        return None


def _lost(world: World, call: Doing) -> World:
    ran = call.step == "record"
    return world._replace(losses_left=world.losses_left - 1, excused=world.excused + ran)
