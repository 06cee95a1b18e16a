"""Breadth-first search over all states of a model: the first trace that is found is a shortest one."""

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import TypeVar

S = TypeVar("S", bound=Hashable)

MOST_STATES = 3_000_000
"""A model that has more is too large to be searched by a test."""


@dataclass(frozen=True)
class Trace:
    """The steps that lead from an initial state to one that must not be."""

    steps: tuple[str, ...]
    broken: str
    """What does not hold in the last state."""

    def __str__(self) -> str:
        return "\n".join(
            [f"broken: {self.broken}", *(f"{n}. {step}" for n, step in enumerate(self.steps, 1))]
        )


def search(
    initial: Iterable[S],
    successors: Callable[[S], Iterable[tuple[str, S]]],
    invariant: Callable[[S], str | None],
) -> Trace | None:
    """A shortest trace to a state that breaks the invariant; None: no state does.

    ``successors`` gives each next state with the name of the step; ``invariant`` tells what is broken in a state.
    """
    came_from: dict[S, tuple[S, str] | None] = dict.fromkeys(initial)
    waiting = deque(came_from)
    while waiting:
        state = waiting.popleft()
        if (broken := invariant(state)) is not None:
            return Trace(_steps(state, came_from), broken)
        for step, following in successors(state):
            if following not in came_from:
                came_from[following] = state, step
                waiting.append(following)
        if len(came_from) > MOST_STATES:
            raise AssertionError(f"more than {MOST_STATES} states: make the model smaller")
    return None


def _steps(state: S, came_from: dict[S, tuple[S, str] | None]) -> tuple[str, ...]:
    steps = []
    while (before := came_from[state]) is not None:
        state, step = before
        steps.append(step)
    return tuple(reversed(steps))
