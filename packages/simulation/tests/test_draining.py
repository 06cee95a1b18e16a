"""A drain in which only entries are behind asks for the walk that would heal them within a day."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from outbox_simulation.engine.deployment import Deployment
from outbox_simulation.engine.last_look import drain
from outbox_simulation.engine.loop import Loop
from outbox_simulation.judging.entries import RULE
from outbox_simulation.judging.violation import Violation

STALE = Violation(RULE, "one entry is behind", may_pass=True)
UNSENT = Violation("lost event", "one was never sent", may_pass=True)


def drained(looks: Iterator[list[Violation]], quiet_at: float = 0.0) -> tuple[list[Violation], int, float]:
    """What was wrong in the end, how often a walk was asked for, and how long it took."""
    loop, walks = Loop(), list[float]()
    deployment: Any = SimpleNamespace(ground=SimpleNamespace(loop=loop), replace_dead=lambda: None)

    async def look() -> list[Violation]:
        return next(looks)

    async def walk() -> None:
        walks.append(loop.time())

    found = loop.run(drain(cast(Deployment, deployment), look, walk, lambda: quiet_at, 1_800.0))
    return found, len(walks), loop.time()


def test_where_only_entries_are_behind_a_walk_is_asked_for() -> None:
    found, walks, _ = drained(iter([[STALE]] * 3 + [[]]))
    assert (found, walks) == ([], 2), "not before a look has shown the same as the one before"


@pytest.mark.parametrize("waits", [[UNSENT], [STALE, UNSENT]])
def test_while_events_wait_no_walk_is_asked_for(waits: list[Violation]) -> None:
    found, walks, took = drained(iter([waits] * 4 + [[]]))
    assert (found, walks) == ([], 0)
    assert took < 5 + 5 + 3 * 15


def test_where_only_quiet_is_missing_it_is_looked_at_again_when_all_is_quiet() -> None:
    not_quiet = Violation("not quiet", "something was written", may_pass=True)
    found, _, took = drained(iter([[not_quiet], []]), quiet_at=18.0)
    assert found == []
    assert 18.0 <= took < 24.0


def test_what_is_still_missing_when_patience_ends_is_reported() -> None:
    found, _, took = drained(iter([[STALE]] * 1_000))
    assert found == [STALE]
    assert 1_800 < took <= 1_860
