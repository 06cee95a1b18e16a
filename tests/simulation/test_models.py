"""What the real code writes in a run are steps of the models, whatever befalls it."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from cosmos_outbox.inbox.decision import Put, mend
from cosmos_outbox.outbox.marker import Marker
from cosmos_outbox.testing.simulation.plan import THEN, SimulationPlan
from cosmos_outbox.testing.simulation.processes import EPOCH
from cosmos_outbox.testing.simulation.store import SentRequest, StoreResponse
from cosmos_outbox.testing.simulation.world import run
from tests.simulation.contacts import CONTACTS
from tests.simulation.replayed.inbox import inbox_steps
from tests.simulation.replayed.mirror import Mirror
from tests.simulation.replayed.parking import parking_steps
from tests.support.azure import DIRECTORY, PARKED
from tests.torture.contacts import Contacts

FIRST, SEEDS = 7, 20
"""Not each seed parks something."""
PARKED_COMMITS = 10

pytestmark = pytest.mark.filterwarnings(  # the world imports all of the SDK
    "ignore:azure.cosmos.errors module:DeprecationWarning"
)


def replayed() -> tuple[list[str], list[str], Mirror, Mirror]:
    """What the models do not allow of the writes of the parking lot, and of the entries, in one run; and all writes."""
    for seed in range(FIRST, FIRST + SEEDS):
        parked, applied, lot, entries = replayed_run(seed)
        if len(lot.commits) >= PARKED_COMMITS:
            return parked, applied, lot, entries
    raise AssertionError(f"none of {SEEDS} seeds parks events")


def replayed_run(seed: int) -> tuple[list[str], list[str], Mirror, Mirror]:
    lot, entries = Mirror(), Mirror()

    def saw(at: float, request: SentRequest, response: StoreResponse) -> None:
        for name, mirror in ((PARKED, lot), (DIRECTORY, entries)):
            if response.status < 300 and response.status != 207 and f"/colls/{name}/docs" in request.path:
                now = EPOCH + timedelta(seconds=at)
                mirror.carried_out(now, "", request.method, request.path, request.headers, request.body)

    drawn = SimulationPlan.drawn(seed)  # no model has much time, or a store that is put back
    result = run(replace(drawn, faults=drawn.faults - {*THEN}), CONTACTS, saw=saw)
    parked = [*map(str, parking_steps(lot.commits))]
    return parked, [*map(str, inbox_steps(entries.commits, result.history, Contacts()))], lot, entries


def test_every_write_of_the_parking_lot_and_of_the_entries_is_a_step_of_its_model() -> None:
    parked, applied, lot, entries = replayed()
    assert (parked, applied, lot.unread, entries.unread) == ([], [], [], [])
    assert len(entries.commits) >= 50


@pytest.mark.long
def test_code_that_breaks_a_rule_of_each_model_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules ``replay-clears-name`` and ``healed-has-no-id``: neither is seen by what comes of it in so short a run."""

    def claimed(self: Marker, replay: str, until: datetime) -> Marker:
        return replace(self, replay=replay, replay_until=until)

    def mended(entry: Any, heal: Any, found: Any, *, fenced: bool) -> Any:
        result = mend(entry, heal, found, fenced=fenced)
        if isinstance(result, Put):
            return Put(replace(result.entry, last_event_id="some event"), result.because)
        return result

    monkeypatch.setattr(Marker, "claimed", claimed)
    monkeypatch.setattr("cosmos_outbox.inbox.state.mend", mended)
    parked, applied, _, _ = replayed()
    assert "no step leads from blocked by" in parked[0]
    assert "no step leads from" in applied[0]
