"""Finds the shortest story of a violation: fewer faults, fewer aggregates, an earlier end, each step by a run.

A smaller plan counts only if the same rule is broken. Shuffling ready handles breaks asyncio's promise of an order: a
story is run first in, first out, if that breaks the rule too, and one that does not is marked as unconfirmed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Protocol, TypeVar

MOST_RUNS = 60
"""The limit of runs: more do not make a story much shorter."""

_FEWEST_AGGREGATES = 1
_SHORTEST_SECONDS = 5.0
_SHARE = 0.1
"""The smallest share by which an end, or a number of aggregates, is worth shrinking."""


class _Violation(Protocol):
    @property
    def rule(self) -> str: ...


class _Plan(Protocol):
    """A frozen dataclass with these fields, and any others."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def faults(self) -> frozenset[str]:
        """The possible kinds of faults."""
        ...

    @property
    def aggregates(self) -> int: ...

    @property
    def seconds(self) -> float:
        """The end of clients and faults, in virtual time."""
        ...

    @property
    def shuffled(self) -> bool:
        """Whether the next ready handle is drawn by the seed; else the first goes first."""
        ...


P = TypeVar("P", bound=_Plan)
V = TypeVar("V", bound=_Violation)


@dataclass(frozen=True)
class ShortestStory(Generic[P, V]):
    """The shortest plan that breaks the rule."""

    plan: P
    violation: V
    runs: int
    """The number of runs it took."""
    confirmed: bool
    """Whether the plan is run first in, first out."""
    ended: bool
    """Whether nothing shorter was left to try when it ended: else runs or time were used up."""


def shrink(
    plan: P,
    run: Callable[[P], V | None],
    *,
    most_runs: int = MOST_RUNS,
    has_time: Callable[[], bool] = lambda: True,
) -> ShortestStory[P, V] | None:
    """Returns the shortest story found within the limit of runs; None: the plan breaks no rule at all.

    ``run``: gives the same for the same plan. ``has_time``: asked before each run but the first and the last.
    """
    violation = run(plan)
    if violation is None:
        return None
    search = _Search(plan, violation, run, most_runs, has_time)
    if plan.shuffled and search.has_runs:
        search.take(replace(plan, shuffled=False))
    while search.has_runs and search.shortened():
        pass
    if search.plan.shuffled and search.take(replace(search.plan, shuffled=False)):
        search.shortened()
    return ShortestStory(
        search.plan, search.violation, search.runs, not search.plan.shuffled, search.has_runs
    )


class _Search(Generic[P, V]):
    """The smallest plan so far, and the plans tried: no plan is run twice."""

    def __init__(
        self,
        plan: P,
        violation: V,
        run: Callable[[P], V | None],
        most_runs: int,
        has_time: Callable[[], bool],
    ) -> None:
        self.plan = plan
        self.violation = violation
        self.runs = 1
        self._run = run
        self._most_runs = most_runs
        self._has_time = has_time
        self._in_vain: list[P] = []

    @property
    def has_runs(self) -> bool:
        # One run is kept for the order.
        return self.runs < self._most_runs - 1 and self._has_time()

    def take(self, smaller: P) -> bool:
        """Returns whether this plan breaks the rule too; then it is the smallest so far."""
        if smaller == self.plan:
            return True
        if smaller in self._in_vain or self.runs >= self._most_runs:
            return False
        self.runs += 1
        found = self._run(smaller)
        if found is None or found.rule != self.violation.rule:
            self._in_vain.append(smaller)
            return False
        self.plan, self.violation = smaller, found
        return True

    def shortened(self) -> bool:
        """Tries once to shrink every part; returns whether one became smaller."""
        before = self.plan
        self._end()  # first, since it shortens every later run
        self._faults()
        self._aggregates()
        return self.plan != before

    def _try(self, smaller: P) -> bool:
        return self.has_runs and self.take(smaller)

    def _end(self) -> None:
        low, unknown = _SHORTEST_SECONDS, True
        while self.plan.seconds - low > self.plan.seconds * _SHARE:
            middle = low if unknown else (low + self.plan.seconds) / 2
            unknown = False
            if not self._try(replace(self.plan, seconds=round(middle, 3))):
                low = middle
            if not self.has_runs:
                return

    def _aggregates(self) -> None:
        low = _FEWEST_AGGREGATES - 1
        while self.plan.aggregates - low > max(1, self.plan.aggregates * _SHARE) and self.has_runs:
            middle = low + 1 if low < _FEWEST_AGGREGATES else (low + self.plan.aggregates) // 2
            if not self._try(replace(self.plan, aggregates=middle)):
                low = middle

    def _faults(self) -> None:
        """Leaves parts out, the whole first, then ever smaller parts (delta debugging)."""
        parts = 1
        while self.plan.faults and self.has_runs:
            faults = sorted(self.plan.faults)
            if any(
                self._try(replace(self.plan, faults=self.plan.faults - {*each}))
                for each in _cut(faults, parts)
            ):
                parts = max(1, parts - 1)
            elif parts >= len(faults):
                return
            else:
                parts = min(len(faults), parts * 2)


def _cut(items: Sequence[str], parts: int) -> list[Sequence[str]]:
    """Splits into so many parts of about one length."""
    size = -(-len(items) // parts)
    return [items[at : at + size] for at in range(0, len(items), size)]
