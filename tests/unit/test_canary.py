"""A canary's subscriber counts what is lost and nothing else: late, repeated and first events are no loss."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest

from cosmos_outbox import Names, Service
from cosmos_outbox.cosmos.inbox.heard import CosmosHeard
from cosmos_outbox.cosmos.store.partition_key import Key
from cosmos_outbox.cosmos.store.writes import Write
from cosmos_outbox.inbox.canary import MOST_MISSING, REMEMBERED, Heard, HeardStore, Listener, Missing
from cosmos_outbox.inbox.errors import EntryChanged, StoreAway
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.aggregates import ATTEMPTS, Aggregates
from cosmos_outbox.outbox.canary import Canary, CanaryState, Singer
from cosmos_outbox.preflight.plan import Plan
from cosmos_outbox.settings.environment import load_canary
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.settings.own_container import OwnContainer
from cosmos_outbox.testing.documents import MemoryContainer
from infra.bootstrap import service as contacts
from tests.support.memory import MemoryStore, claims_in_memory

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)


@dataclass
class Kept:
    """A store, of which a read may be as old as the one before."""

    history: list[Heard] = field(default_factory=list)
    lagging: bool = False

    async def read(self) -> tuple[Heard, str] | None:
        behind = 2 if self.lagging and len(self.history) > 1 else 1
        self.lagging = False
        return (self.history[-behind], str(len(self.history) - behind + 1)) if self.history else None

    async def write(self, heard: Heard, over: str | None) -> None:
        if int(over or 0) != len(self.history):
            raise EntryChanged("moved")
        self.history.append(heard)


@dataclass
class Ears:
    store: HeardStore = field(default_factory=Kept)
    told: list[tuple[int, float | None]] = field(default_factory=list)
    now: datetime = NOON

    async def hear(self, *sequences: int, republished: bool = False) -> None:
        listener = Listener(self.store, lambda lost, delay: self.told.append((lost, delay)), lambda: self.now)
        for sequence in sequences:
            at = self.now - timedelta(seconds=2)
            event = Event(
                f"e{sequence}", AggregateKey("canary", "canary"), "CanarySangEvent", sequence, at, {}
            )
            await listener.handle(replace(event, republished=republished))

    @property
    def lost(self) -> int:
        return self.told[-1][0]


async def test_an_event_each_minute_is_no_loss_and_has_its_delay() -> None:
    ears = Ears()
    await ears.hear(1, 2, 3)
    assert ears.told == [(0, 2.0)] * 3


async def test_one_that_does_not_come_is_one_that_is_lost_and_is_told_for_an_hour() -> None:
    ears = Ears()
    await ears.hear(1, 2, 4)
    assert ears.lost == 1
    ears.now += REMEMBERED - timedelta(seconds=1)
    await ears.hear(5)
    assert ears.lost == 1
    ears.now += timedelta(seconds=1)
    await ears.hear(6)
    assert ears.lost == 0


async def test_one_that_comes_late_is_not_lost() -> None:
    ears = Ears()
    await ears.hear(1, 4, 3)
    assert ears.lost == 1
    await ears.hear(2)
    assert ears.told[-1] == (0, None), "how late a dead letter is, is no delay of the path"


async def test_what_comes_again_changes_nothing() -> None:
    kept = Kept()
    ears = Ears(kept)
    await ears.hear(1, 2)
    await ears.hear(2, 1)
    await ears.hear(9, republished=True)
    assert ears.told == [(0, 2.0), (0, 2.0), (0, None), (0, None)]
    assert len(kept.history) == 2


async def test_whoever_begins_to_listen_has_lost_nothing() -> None:
    ears = Ears()
    await ears.hear(4711)
    assert ears.lost == 0


async def test_a_restart_and_an_old_read_make_no_gap_and_hide_none() -> None:
    kept = Kept()
    ears = Ears(kept)
    await ears.hear(1, 2)
    kept.lagging = True
    await ears.hear(3)
    assert (ears.lost, kept.history[-1].last) == (0, 3)
    again = Ears(kept)
    await again.hear(5)
    assert again.lost == 1


async def test_where_others_write_each_time_the_event_is_left_to_its_next_delivery() -> None:
    class Overtaken(Kept):
        async def write(self, heard: Heard, over: str | None) -> None:
            raise EntryChanged("moved")

    ears = Ears(Overtaken())
    with pytest.raises(StoreAway):
        await ears.hear(1)
    assert ears.told == []


async def test_what_is_remembered_is_bounded() -> None:
    ears = Ears()
    await ears.hear(1, 1_000_000, 2_000_000)
    assert ears.lost == MOST_MISSING


async def test_what_was_heard_is_kept_over_the_version_that_was_read_and_by_subscription() -> None:
    container = MemoryContainer()
    one, another, apart = (CosmosHeard(container, name) for name in ("canary", "canary", "bird"))
    assert await one.read() is None
    with pytest.raises(EntryChanged):
        await one.write(Heard(1), '"1"')
    await one.write(Heard(1), None)
    with pytest.raises(EntryChanged):
        await another.write(Heard(9), None)
    found = await another.read()
    assert found is not None
    first, version = found
    gap = Heard(4, (Missing(2, NOON), Missing(3, NOON + timedelta(minutes=1))))
    await another.write(gap, version)
    with pytest.raises(EntryChanged):
        await one.write(Heard(2), version)
    now = await one.read()
    assert now is not None
    assert (first, now[0], now[1] != version) == (Heard(1), gap, True)
    assert await apart.read() is None


async def test_a_gap_outlives_the_process_that_found_it() -> None:
    store = CosmosHeard(MemoryContainer(), "canary")
    await Ears(store).hear(1, 3)
    again = Ears(store)
    await again.hear(4)
    assert again.lost == 1
    await again.hear(2)
    assert again.lost == 0


def test_a_canary_sings_once_a_minute_however_many_make_it() -> None:
    canary = Canary(CanaryState(created_at=NOON, sung_at=NOON, last_sequence=1), is_new=False)
    canary.sing(NOON + timedelta(seconds=10))
    assert canary.changes() is None
    canary.sing(NOON + timedelta(seconds=60))
    changes = canary.changes()
    assert changes is not None
    [event] = changes.events
    assert (event.action, event.sequence) == ("CanarySangEvent", 2)


class Rivals(MemoryContainer):
    """Before each commit another process sings."""

    async def execute(self, partition_key: Key, writes: Sequence[Write]) -> list[str]:
        rival = MemoryContainer(self.documents)
        await singer(rival, NOON + timedelta(hours=len(self.documents.written) + 1)).sing()
        return await super().execute(partition_key, writes)


def singer(container: MemoryContainer, now: datetime) -> Singer:
    return Singer(Aggregates(MemoryStore(container), claims_in_memory()), lambda: now)


async def test_it_is_made_when_it_first_sings_and_sings_once_a_minute_whichever_process_asks() -> None:
    store = MemoryStore()
    for seconds in (0, 30, 60, 80, 120):
        await singer(store.container, NOON + timedelta(seconds=seconds)).sing()
    told = [(each.action, each.sequence, each.created_at) for each in store.events]
    assert told == [
        ("CanaryCreatedEvent", 1, NOON),
        ("CanarySangEvent", 2, NOON + timedelta(minutes=1)),
        ("CanarySangEvent", 3, NOON + timedelta(minutes=2)),
    ]


async def test_where_another_process_is_faster_it_has_sung() -> None:
    store = MemoryStore(Rivals())
    for minutes in (0, 1):
        await singer(store.container, NOON + timedelta(minutes=minutes)).sing()
    assert [each.created_at for each in store.events if each.created_at < NOON + timedelta(hours=1)] == []
    assert len(store.events) == 1 + ATTEMPTS


@pytest.mark.parametrize(
    ("environment", "subscription"),
    [
        ({}, None),
        ({"CANARY": "false", "CANARY_SUBSCRIPTION": "x"}, None),
        ({"CANARY": "true"}, "canary"),
        ({"CANARY": "True", "CANARY_SUBSCRIPTION": "bird"}, "bird"),
    ],
)
def test_there_is_none_unless_it_is_switched_on(
    environment: dict[str, str], subscription: str | None
) -> None:
    assert load_canary(environment) == subscription


def test_a_setting_that_is_neither_is_told() -> None:
    with pytest.raises(Misconfigured, match="CANARY is 'yes'"):
        load_canary({"CANARY": "yes"})


@pytest.mark.parametrize(
    ("canary", "subscriptions"), [("false", ["contact-directory"]), ("true", ["contact-directory", "canary"])]
)
def test_preflight_looks_at_its_subscription_where_there_is_one(
    canary: str, subscriptions: list[str]
) -> None:
    environment = {
        "COSMOS": "AccountEndpoint=https://x/;AccountKey=AA==;",
        "SERVICEBUS": "Endpoint=sb://x",
        "CANARY": canary,
    }
    plan = Plan(
        contacts.settings(environment), contacts, None, (), timedelta(days=1), as_app=False, emulator_port=0
    )
    assert [name for _, name in plan.subscriptions] == subscriptions


def test_a_service_with_documents_of_the_teams_own_has_none_and_is_told() -> None:
    service = Service("rooms", names=Names("d", "c", "t"), own=OwnContainer("/room", {"room": None}))
    environment = {
        "COSMOS": "AccountEndpoint=https://x/;AccountKey=AA==;",
        "SERVICEBUS": "Endpoint=sb://x",
        "CANARY": "true",
    }
    with pytest.raises(Misconfigured, match="CANARY is true"):
        service.wire(environment)
