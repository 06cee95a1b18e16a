"""Every state of a model is looked at, the nearest first: so the trace to a broken rule is a shortest one."""

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

State = TypeVar("State", bound=Hashable)

MOST_STATES = 2_000_000
"""A model with more is too large to be searched within a test."""


@dataclass(frozen=True)
class Searched(Generic[State]):
    """The result of a search."""

    states: int
    """How many different states were looked at."""
    trace: tuple[str, ...] | None
    """The steps to a state that breaks the rule, and what is wrong there; None when no state breaks it."""


def search(
    initial: State,
    successors: Callable[[State], Iterable[tuple[str, State]]],
    wrong: Callable[[State], str | None],
) -> Searched[State]:
    """Look at every state.

    ``successors``: each step that can come next, by its name, with the state that it leads to. ``wrong``: what is wrong
    with a state, or None.
    """
    came_by: dict[State, tuple[State, str] | None] = {initial: None}
    waiting = deque([initial])
    while waiting:
        state = waiting.popleft()
        if (problem := wrong(state)) is not None:
            return Searched(len(came_by), (*_steps(state, came_by), problem))
        for step, reached in successors(state):
            if reached not in came_by:
                came_by[reached] = state, step
                waiting.append(reached)
        if len(came_by) > MOST_STATES:
            raise AssertionError(f"the model has over {MOST_STATES} states: make it smaller")
    return Searched(len(came_by), None)


def _steps(state: State, came_by: dict[State, tuple[State, str] | None]) -> list[str]:
    steps: list[str] = []
    while (came := came_by[state]) is not None:
        state, step = came
        steps.append(step)
    return steps[::-1]
