"""Whoever reads histories while things fail is told changes that were committed, without a gap, or to come later."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from cosmos_outbox.cosmos.aggregates.past_changes import CosmosPastChanges
from cosmos_outbox.http.calls import calls
from cosmos_outbox.http.message import Answer, Headers, Request
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.archive_index import ArchiveIndex
from cosmos_outbox.testing.judging.violation import Violation
from cosmos_outbox.testing.simulation.plan import SimulationPlan
from cosmos_outbox.testing.simulation.subject import SimulatedClient
from cosmos_outbox.testing.simulation.world import run
from cosmos_outbox.wiring.service import Wired
from infra.contacts_http import contacts
from tests.simulation.contacts import CONTACTS
from tests.simulation.test_archive import HOST, PlanWithArchive, WorldWithArchive

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
# tests/contract/test_past_changes.py has what a history may not do

LATER = {429, 503}
GONE = {404}


class PlanWithIndex(PlanWithArchive):
    @property
    def settings(self) -> dict[str, str]:
        return super().settings | {"ARCHIVE_INDEX": "true"}


@dataclass
class HistoryReader:
    """Reads one history after another, in pages of several sizes, as a caller of the API does."""

    world: "WorldWithHistories"
    wrong: list[Violation] = field(default_factory=list)
    pages: int = 0

    async def go_on(self) -> None:
        chance, deployment = self.world.plan.chance("histories"), self.world.deployment
        while not self.world._over():
            await asyncio.sleep(chance.uniform(0.1, 2.0))
            if known := sorted({each.aggregate for each in self.world.history.stored.values()}):
                desk, newest = deployment.desks[0], chance.random() < 0.5
                walk = self._walk(desk.wired, chance.choice(known), chance.choice([1, 3, 100]), newest=newest)
                await self.world.loop.begin(desk.instance, walk)

    async def _walk(self, wired: Wired, contact: str, size: int, *, newest: bool) -> None:
        [call] = [each for each in calls(lambda: wired, [contacts]) if each.is_history]
        committed, seen, token = self._committed(contact), list[int](), ""
        while not self.world._over():
            query = f"pageSize={size}" + (f"&continuationToken={token}" if token else "")
            asks = Headers({"Cache-Control": "no-cache"} if newest else {})
            url = f"http://x/api/contacts/{contact}/history?{query}"
            answer = await call.handler(Request("GET", url, asks, {"id": contact}))
            if answer.status in LATER:
                await asyncio.sleep(1.0)
                continue
            if answer.status in GONE:
                return
            token = self._judge(contact, answer, seen)
            if newest and seen and seen[0] < max(committed, default=0):
                self._tell(f"{contact} begins with {seen[0]}, and {max(committed)} was committed")
            if not token:
                return

    def _judge(self, contact: str, answer: Answer, seen: list[int]) -> str:
        """The token of the next page; nothing: it is the last."""
        self.pages += 1
        if answer.status != 200:
            self._tell(f"{contact} is answered {answer.status}")
            return ""
        page, committed = json.loads(answer.body), self._committed(contact)
        for item in page["items"]:
            sequence = item["sequence"]
            if seen and sequence != seen[-1] - 1:
                self._tell(f"{contact} tells {sequence} after {seen[-1]}")
            seen.append(sequence)
            if sequence not in committed:
                self._tell(f"{contact} tells {sequence}, which never was committed")
                continue
            self._compare(contact, item, committed[sequence])
        token = page["continuationToken"] or ""
        if page["completeFrom"] != (seen[-1] if seen else 0):
            self._tell(f"{contact} ends with {seen[-1:]}, and says {page['completeFrom']}")
        if not token and page["completeFrom"] != 1:
            self._tell(f"{contact} begins with {page['completeFrom']}, and nothing has expired")
        return token

    def _compare(self, contact: str, item: dict[str, Any], body: dict[str, Any]) -> None:
        told = {each["field"]: each["to"] for each in item["changes"]}
        for name, value in told.items():
            was = body.get("contact", body).get(name)
            if item["type"] != body["action"] or value != _shown(value, was):
                self._tell(f"{contact} tells another {name} at {item['sequence']} than was committed")

    def _committed(self, contact: str) -> dict[int, dict[str, Any]]:
        return {
            each.sequence: each.body
            for each in self.world.history.stored.values()
            if each.aggregate == contact
        }

    def _tell(self, what: str) -> None:
        self.wrong.append(Violation("a history", what))


def _shown(value: Any, was: Any) -> Any:
    """What was committed, as far as callers see it: a later version's fields are not shown."""
    if isinstance(value, dict) and isinstance(was, dict):
        return {name: was.get(name) for name in value}
    return was


class WorldWithHistories(WorldWithArchive):
    reader: HistoryReader | None = None

    async def _act(self, client: SimulatedClient) -> None:
        if self.reader is None:
            self.reader = HistoryReader(self)
            await asyncio.gather(super()._act(client), self.reader.go_on())
        else:
            await super()._act(client)

    async def _look(self) -> list[Violation]:
        found = await super()._look()
        assert self.reader is not None
        return [*found, *self.reader.wrong, *([] if found else await self._left_out())]

    async def _left_out(self) -> list[Violation]:
        """Once all has expired in the store, the archive tells it."""
        index, reader = ArchiveIndex(self.ground.archive), self.desk.wired.outbox.events
        left_out = []
        for line in {(each.aggregate, each.sequence): each for each in self.history.stored.values()}.values():
            if line.sequence < 1:
                continue
            partition = reader.paths.name(line.aggregate)
            looked = await index.look(AggregateKey("contact", line.aggregate), partition, [line.sequence])
            if line.sequence not in looked.lines:
                left_out.append(
                    Violation(
                        "a history", f"the archive does not lead to {line.sequence} of {line.aggregate}"
                    )
                )
        return left_out


def ran(seed: int) -> tuple[list[str], int]:
    drawn, worlds = SimulationPlan.drawn(seed), list[WorldWithHistories]()

    def world(*given: Any) -> WorldWithHistories:
        worlds.append(WorldWithHistories(*given))
        return worlds[-1]

    plan = PlanWithIndex(seed, drawn.faults - HOST, drawn.aggregates, drawn.seconds)
    violations = [str(each) for each in run(plan, CONTACTS, world).violations]
    assert worlds[0].reader is not None
    return violations, worlds[0].reader.pages


@pytest.mark.parametrize("seed", range(1, 7))
def test_under_faults_a_history_has_no_gap_and_nothing_that_was_not_committed(seed: int) -> None:
    violations, pages = ran(seed)
    assert violations == []
    assert pages > 5


def test_a_history_that_believes_a_replica_that_lags_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hurried(self: CosmosPastChanges, key: AggregateKey, places: range, _: int) -> Any:
        return await self._find(key, places), places.start

    monkeypatch.setattr(CosmosPastChanges, "_read", hurried)
    assert any("a history" in told for seed in range(1, 7) for told in ran(seed)[0])
