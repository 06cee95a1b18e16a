"""Targets that are looked up, by two instances whose answers are lost and who die, while the list changes.

Each target's own record is that of ``tests/models/reactions.py``: here an outcome is stored once. The list is {a} until
the message is sent, then {a, b}, and later {a, c}.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

RULES = frozenset({"list_fenced", "list_stored_once"})
GIVING_UP = "discard_marks"
"""Of ``tests/models/reactions.py``: who gives a message up stores an empty list."""

LACKS = "a target is missed"
OF_NO_TIME = "the targets of no time are changed"
GIVEN_UP = "a message that was given up is applied"

LISTS = (frozenset("a"), frozenset("ab"), frozenset("ac"))
SENT = 1
"""The message is sent when this list is the newest."""


class Process(NamedTuple):
    at: str = "idle"
    """Also: look, create, apply."""
    targets: frozenset[str] = frozenset()
    lives: int = 1


class State(NamedTuple):
    processes: tuple[Process, ...] = (Process(), Process())
    newest: int = SENT
    stored: frozenset[str] | None = None
    applied: frozenset[str] = frozenset()
    passed: frozenset[str] = frozenset()
    """Targets at which the message was given up."""
    given_up: bool = False
    completed: bool = False
    comes: int = 3
    problem: str = ""


@dataclass(frozen=True)
class Model:
    """The protocol under these rules."""

    rules: frozenset[str] = RULES | {GIVING_UP}
    operator: bool = True
    lists: tuple[frozenset[str], ...] = LISTS
    sent: int = SENT

    def successors(self, state: State) -> Iterator[tuple[str, State]]:
        if state.problem:
            return
        for number, process in enumerate(state.processes):
            for step, reached in self._process(state, number, process):
                yield f"{number + 1}: {step}", reached
        if state.newest + 1 < len(self.lists):
            yield "the list changes", state._replace(newest=state.newest + 1)
        if self.operator and not state.given_up and not state.completed:
            yield "an operator gives it up", self._given_up(state)

    def _given_up(self, state: State) -> State:
        if GIVING_UP not in self.rules:
            return state._replace(given_up=True)
        stored = state.stored if state.stored is not None else frozenset()
        return state._replace(given_up=True, stored=stored, passed=stored - state.applied)

    def _process(self, state: State, number: int, process: Process) -> Iterator[tuple[str, State]]:
        if process.at != "idle" and process.lives:
            yield "dies", _put(state, number, Process(lives=process.lives - 1))
        match process.at:
            case "idle" if state.comes and not state.completed:
                received = state._replace(comes=state.comes - 1)
                yield "receives it, and sees no list", _put(received, number, process._replace(at="look"))
                if state.stored is not None and "list_stored_once" in self.rules:
                    stored = process._replace(at="apply", targets=state.stored)
                    yield "receives it, and sees the list", _put(received, number, stored)
            case "look":
                for step, targets in self._looked_up(state):
                    at = "create" if "list_stored_once" in self.rules else "apply"
                    yield step, _put(state, number, process._replace(at=at, targets=targets))
            case "create":
                yield from _create(state, number, process)
            case "apply":
                yield from self._apply(state, number, process)

    def _looked_up(self, state: State) -> Iterator[tuple[str, frozenset[str]]]:
        oldest = state.newest if "list_fenced" in self.rules else 0
        for place in range(oldest, state.newest + 1):
            yield f"looks up {'the' if place == state.newest else 'an old'} list", self.lists[place]

    def _apply(self, state: State, number: int, process: Process) -> Iterator[tuple[str, State]]:
        left = process.targets - state.applied - state.passed
        for target in sorted(left):
            yield f"changes {target}", self._applied(state, target)
        if not left:
            yield "completes it", _put(self._completed(state), number, process._replace(at="idle"))

    def _applied(self, state: State, target: str) -> State:
        applied = state.applied | {target}
        if state.given_up:
            return state._replace(applied=applied, problem=GIVEN_UP)
        of_a_time = any(applied <= each for each in self.lists[self.sent :])
        return state._replace(applied=applied, problem="" if of_a_time else OF_NO_TIME)

    def _completed(self, state: State) -> State:
        done = state._replace(completed=True)
        if state.given_up or any(each <= state.applied for each in self.lists[self.sent :]):
            return done
        return done._replace(problem=LACKS)


def _put(state: State, number: int, process: Process) -> State:
    return state._replace(processes=(*state.processes[:number], process, *state.processes[number + 1 :]))


def _create(state: State, number: int, process: Process) -> Iterator[tuple[str, State]]:
    applies = process._replace(at="apply")
    if state.stored is not None:
        yield "there is a list, which it reads", _put(state, number, applies._replace(targets=state.stored))
        return
    stored = state._replace(stored=process.targets)
    yield "stores the list", _put(stored, number, applies)
    yield "stores the list, answer lost", _put(stored, number, process)


def wrong(state: State) -> str | None:
    """What is wrong, if anything is."""
    return state.problem or None
