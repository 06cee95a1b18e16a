"""A drain that waits for a subscriber's sweep alone pauses the relays, and goes on as soon as something changes."""

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


def drained(
    looks: Iterator[list[Violation]], quiet_at: float = 0.0
) -> tuple[list[Violation], list[float], float]:
    """What was wrong in the end, how long the relay was paused each time, and how long it took."""
    loop, pauses = Loop(), list[float]()
    deployment: Any = SimpleNamespace(
        ground=SimpleNamespace(loop=loop),
        relays=[SimpleNamespace(pause=pauses.append)],
        replace_dead=lambda: None,
    )

    async def look() -> list[Violation]:
        return next(looks)

    found = loop.run(drain(cast(Deployment, deployment), look, lambda: quiet_at, 1_800.0))
    return found, pauses, loop.time()


def test_while_only_entries_are_behind_the_relays_rest_from_look_to_look() -> None:
    found, pauses, took = drained(iter([[STALE]] * 12 + [[]]))
    assert found == []
    assert len(pauses) == 11, "not before a look has shown the same as the one before"
    assert max(pauses) == pytest.approx(60)
    assert took == pytest.approx(5 + 5 + sum(pauses))


@pytest.mark.parametrize("waits", [[UNSENT], [STALE, UNSENT]])
def test_a_relay_that_has_work_never_rests(waits: list[Violation]) -> None:
    found, pauses, took = drained(iter([waits] * 4 + [[]]))
    assert (found, pauses) == ([], [])
    assert took < 5 + 5 + 3 * 15


def test_where_only_quiet_is_missing_it_is_looked_at_again_when_all_is_quiet() -> None:
    not_quiet = Violation("not quiet", "something was written", may_pass=True)
    found, pauses, took = drained(iter([[not_quiet], []]), quiet_at=18.0)
    assert (found, pauses) == ([], [])
    assert 18.0 <= took < 24.0


def test_what_is_still_missing_when_patience_ends_is_told() -> None:
    found, _, took = drained(iter([[STALE]] * 1_000))
    assert found == [STALE]
    assert 1_800 < took <= 1_860
