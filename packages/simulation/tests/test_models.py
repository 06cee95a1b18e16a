"""What the real code writes in a run are steps of the models, under any fault."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import pytest

from cosmos_outbox.cosmos.aggregates.documents import KeyRecord, record_item
from cosmos_outbox.cosmos.aggregates.idempotency import ChangeRequest
from cosmos_outbox.cosmos.inbox.reaction_decision import TargetRef
from cosmos_outbox.cosmos.inbox.reactions import CosmosReactions, ReactionInbox
from cosmos_outbox.cosmos.store.container import Write
from cosmos_outbox.inbox.message import Event
from cosmos_outbox.inbox.read_model import Put, mend
from cosmos_outbox.outbox.aggregate_block import AggregateBlock
from cosmos_outbox.settings.transports import Name
from outbox_simulation.engine.plan import SimulationPlan
from replayed.claims import claim_steps
from replayed.commits import Commit, Ended
from replayed.inbox import inbox_steps
from replayed.keyed import keyed_steps
from replayed.mirror import Mirror
from replayed.parking import parking_steps
from replayed.reactions import reaction_steps
from replayed.runs import calls_kept, kept, kept_of_piles
from replayed.targets import TargetsReplayed
from simulated import reacting
from simulated.contacts import CONTACTS
from tests.support.azure import CLAIMS, DIRECTORY, PARKED
from tests.torture.contacts import Contacts

CONTAINER = "contacts"
FIRST, SEEDS = 43, 20
"""Not each seed parks something, heals something, or writes enough."""
OF_REACTIONS = 19
"""A quick seed that writes enough of them."""
PARKED_COMMITS, ENTRY_COMMITS = 10, 50

pytestmark = pytest.mark.filterwarnings(  # the world imports all of the SDK
    "ignore:azure.cosmos.errors module:DeprecationWarning"
)


@dataclass
class Replayed:
    """What the models do not allow of the writes of one run, and all writes."""

    lot: Mirror = field(default_factory=Mirror)
    entries: Mirror = field(default_factory=Mirror)
    claims: Mirror = field(default_factory=Mirror)
    found: dict[str, list[str]] = field(default_factory=dict)
    """By model."""

    def __post_init__(self) -> None:
        self.contacts = Mirror(self.claims.commits)

    @property
    def mirrors(self) -> dict[str, Mirror]:
        return {PARKED: self.lot, DIRECTORY: self.entries, CLAIMS: self.claims, CONTAINER: self.contacts}


def replayed(over: Name = "servicebus") -> Replayed:
    for seed in range(FIRST, FIRST + SEEDS):
        replays = Replayed()
        result = kept(SimulationPlan.drawn(seed, transport=over), CONTACTS, replays.mirrors)
        if len(replays.lot.commits) < PARKED_COMMITS or len(replays.entries.commits) < ENTRY_COMMITS:
            continue
        steps = {
            "parking": parking_steps(replays.lot.commits),
            "inbox": inbox_steps(replays.entries.commits, result.history, Contacts()),
            "claims": claim_steps(replays.claims.commits, "contact"),
            "keyed": keyed_steps(replays.claims.commits, "contact"),
        }
        replays.found = {model: [*map(str, each)] for model, each in steps.items()}
        return replays
    raise AssertionError(f"none of {SEEDS} seeds parks events and writes enough")


def written(commits: Sequence[Any], kind: str) -> int:
    """How many documents of a type were written."""
    changes = (change for each in commits for change in each.changes)
    return sum(now is not None and now.get("type") == kind for _, now in changes)


@pytest.mark.long  # tests/models search the models; make test-all holds the code to them
@pytest.mark.parametrize("over", ["servicebus", "storagequeue"])
def test_every_write_of_a_run_is_a_step_of_its_model(over: Name) -> None:
    replays = replayed(over)
    assert replays.found == {"parking": [], "inbox": [], "claims": [], "keyed": []}
    assert [each.unread for each in replays.mirrors.values()] == [[]] * 4
    assert len(replays.entries.commits) >= 50
    assert written(replays.claims.commits, "idempotencyClaim") >= 3
    assert written(replays.claims.commits, "changeRecord") >= 5


def reactions(seed: int) -> Sequence[Commit | Ended]:
    """What was written of the reactions of a run, and each call of one that ended well."""
    steps = list[Commit | Ended]()
    mirror = Mirror(steps)
    with calls_kept(steps):
        kept_of_piles(seed, reacting.service, reacting.commands(), {"piles": mirror})
    assert mirror.unread == []
    return steps


def not_allowed(steps: Sequence[Commit | Ended]) -> dict[str, list[str]]:
    """By model."""
    return {
        "reactions": [*map(str, reaction_steps(commits_of(steps), reacting.service))],
        "targets": [*TargetsReplayed(reacting.service).not_allowed(steps)],
    }


def commits_of(steps: Sequence[Commit | Ended]) -> list[Commit]:
    return [each for each in steps if isinstance(each, Commit)]


@pytest.mark.long
def test_every_transaction_of_a_reaction_is_a_step_of_its_models() -> None:
    steps = reactions(OF_REACTIONS)
    assert not_allowed(steps) == {"reactions": [], "targets": []}
    assert written(commits_of(steps), "reactionRecord") >= 20
    assert sum(isinstance(each, Ended) for each in steps) >= 50


@pytest.mark.long
def test_code_that_breaks_a_rule_of_each_model_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules ``replay-clears-name``, ``healed-has-no-id``, ``lives_as_long``, and that a record has the sequence after
    its change: none is seen by what comes of it in so short a run."""

    def claimed(self: AggregateBlock, replay: str, until: datetime) -> AggregateBlock:
        return replace(self, replay=replay, replay_until=until)

    def mended(entry: Any, heal: Any, found: Any, *, notes_gone: bool) -> Any:
        result = mend(entry, heal, found, notes_gone=notes_gone)
        if isinstance(result, Put):
            return Put(replace(result.entry, last_event_id="some event"), result.because)
        return result

    def short_lived(*arguments: Any, ttl: int) -> Any:
        return record_item(*arguments, ttl=60)

    def before(self: ChangeRequest[Any], sequence: int, refused: int | None = None) -> KeyRecord[Any]:
        return KeyRecord(self.record, self.request.fingerprint, sequence - 1, refused)

    monkeypatch.setattr(AggregateBlock, "claimed", claimed)
    monkeypatch.setattr("cosmos_outbox.inbox.read_model.mend", mended)
    monkeypatch.setattr("cosmos_outbox.cosmos.aggregates.aggregates.record_item", short_lived)
    monkeypatch.setattr(ChangeRequest, "answer", before)
    replays = replayed().found
    assert "no step leads from blocked by" in replays["parking"][0]
    assert "no step leads from" in replays["inbox"][0]
    assert "lives_as_long" in replays["claims"][0]
    assert "no step without a record" in replays["keyed"][0]


@pytest.mark.long
def test_a_reaction_whose_cursor_stays_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule ``every_outcome_moves``: seen by what comes of it only where a message comes late."""
    beside = CosmosReactions._records

    def alone(self: CosmosReactions[Any], *arguments: Any) -> list[Write]:
        return beside(self, *arguments)[:1]

    monkeypatch.setattr(CosmosReactions, "_records", alone)
    replays = not_allowed(reactions(FIRST))["reactions"]
    assert any("no step leads from" in each for each in replays)


@pytest.mark.long
def test_a_call_that_ends_before_its_last_target_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule ``complete_after_all``."""
    places = ReactionInbox._places

    def first(self: ReactionInbox[Any], event: Event, targets: Mapping[str, str]) -> list[TargetRef]:
        return places(self, event, targets)[:1]

    monkeypatch.setattr(ReactionInbox, "_places", first)
    replays = not_allowed(reactions(FIRST))
    assert any("complete_after_all" in each for each in replays["targets"])
