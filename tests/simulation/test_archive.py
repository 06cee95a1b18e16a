"""Whatever fails, each event that was stored is in the archive, as it was stored; a reader who forgets one is seen."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from cosmos_outbox.cosmos.aggregates.documents import is_as_committed
from cosmos_outbox.cosmos.store.partition_key import PARTITION_KEY
from cosmos_outbox.outbox.archive import Archiver
from cosmos_outbox.testing.judging.violation import Violation
from cosmos_outbox.testing.simulation.plan import SimulationPlan
from cosmos_outbox.testing.simulation.world import World, run
from tests.simulation.contacts import CONTACTS

HOST = {"host"}
"""The Functions host reads its functions from its own environment."""

FIRST, LATER = 4, (1, 2, 3, 5, 6)
"""The first draws most kinds of faults, and is quick: of two aggregates."""


@dataclass(frozen=True)
class PlanWithArchive(SimulationPlan):
    @property
    def settings(self) -> dict[str, str]:
        return super().settings | {"ARCHIVE": "in memory"}


class WorldWithArchive(World):
    async def _look(self) -> list[Violation]:
        archive = self.ground.archive
        archive.chance, archive.fails = self.plan.chance("archive"), 0.0
        lines: list[dict[str, Any]] = [
            json.loads(line) for body, _ in archive.contents.values() for line in body.splitlines()
        ]
        archived = {line["id"]: line for line in lines}
        missing = set(self.history.stored) - set(archived)
        changed = [
            line["id"]
            for line in lines
            if "invalid" not in line and not is_as_committed(line["document"], PARTITION_KEY)
        ]
        found = await super()._look()
        if missing:
            found = [*found, Violation("not archived", f"{len(missing)} events", may_pass=True)]
        if changed:
            found = [*found, Violation("archived otherwise", f"{len(changed)} events")]
        return found

    async def live(self) -> list[Violation]:
        archive = self.ground.archive
        archive.chance, archive.fails, archive.slow = self.plan.chance("archive"), 0.2, 0.5
        return await super().live()


def violations(seed: int) -> list[str]:
    drawn = SimulationPlan.drawn(seed)
    plan = PlanWithArchive(seed, drawn.faults - HOST, drawn.aggregates, drawn.seconds)
    ran = run(plan, CONTACTS, WorldWithArchive)
    assert len(ran.history.stored) > 5
    return [each.rule for each in ran.violations]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [FIRST, *(pytest.param(seed, marks=pytest.mark.long) for seed in LATER)])
def test_under_faults_each_event_is_archived(seed: int) -> None:
    assert violations(seed) == []


@pytest.mark.timeout(300)
@pytest.mark.long
def test_a_page_that_counts_as_done_before_it_is_archived_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    keep = Archiver.keep

    async def hurried(self: Archiver, events: Any) -> int:
        try:
            return await keep(self, events)
        except Exception:  # noqa: BLE001 - the bug that is planted
            return 0

    monkeypatch.setattr(Archiver, "keep", hurried)
    assert any("not archived" in violations(seed) for seed in (1, 2, 5))
