"""A message for two targets, of two reactions: each has an outcome, whatever dies, and none has another's record."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

RULES = frozenset({"reaction_in_id", "target_in_id", "complete_after_all"})

MISSED = "a target is missed"
TARGETS = (("bill", "a"), ("bill", "b"), ("mail", "a"))
"""Reaction and target."""


class State(NamedTuple):
    done: frozenset[int] = frozenset()
    """The targets that were changed."""
    records: frozenset[tuple[str, str]] = frozenset()
    at: int | None = None
    """The target that is next; None: the message is not in hand."""
    comes: int = 2
    completed: bool = False


@dataclass(frozen=True)
class Model:
    """The protocol under these rules: a refusal, as any outcome, stops no other."""

    rules: frozenset[str] = RULES
    targets: tuple[tuple[str, str], ...] = TARGETS

    def successors(self, state: State) -> Iterator[tuple[str, State]]:
        if state.at is None:
            if state.comes and not state.completed:
                yield "receives the message", state._replace(at=0, comes=state.comes - 1)
            return
        yield "dies", state._replace(at=None)
        if state.at == len(self.targets):
            yield "completes it", state._replace(at=None, completed=True)
            return
        if state.at and "complete_after_all" not in self.rules:
            yield "completes it", state._replace(at=None, completed=True)
        after = state._replace(at=state.at + 1)
        record = self._id(*self.targets[state.at])
        if record in state.records:
            yield "the record is there", after
            return
        stored = after._replace(done=state.done | {state.at}, records=state.records | {record})
        yield "stored", stored
        yield "stored, dies", stored._replace(at=None)

    def _id(self, reaction: str, target: str) -> tuple[str, str]:
        return (
            reaction if "reaction_in_id" in self.rules else "",
            target if "target_in_id" in self.rules else "",
        )


def wrong(state: State) -> str | None:
    """What is wrong, if anything is."""
    return MISSED if state.completed and len(state.done) < len(TARGETS) else None
