"""Effects survive the loss of any one write or its answer, with or without the process, on replicas that lag.

One write of a story is lost, or a process dies at one of its awaits. The broker brings a message again that was not
done, the sweep comes by, and the effects have to be those of a story without the loss: in order, none left out, and one
of them twice only where the process died between an effect and its record.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from uuid import uuid4

import pytest
from azure.cosmos.aio import CosmosClient

from cosmos_outbox.cosmos.inbox.effects import CosmosEffects
from cosmos_outbox.cosmos.store.container import Container
from cosmos_outbox.inbox.effect import CALL, EffectItem
from cosmos_outbox.inbox.effect_decision import EffectCall, EffectChange
from cosmos_outbox.inbox.effects import EffectInbox
from cosmos_outbox.inbox.errors import EffectRefused, InboxError
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from devstack.testing import Service
from tests.support.azure import CONTACTS, EFFECTS, PARKED, contacts_database
from tests.support.effects import ITEMS_LIVE, RULES, Clock, Outbound
from tests.support.emulators import Gap
from tests.support.losses import EACH_LOSS, Failing, Fate, Loss, ProcessDied
from tests.support.reactions import CutOff, no_loss
from tests.support.stored_events import StoredEvents

pytestmark = pytest.mark.known_gap(Gap.BATCH_IGNORES_ETAG)

_ATTEMPTS = 8
ACTIONS = ("Mailed", "Seen", "Mailed", "Mailed")
DIES = (Loss.DIED_BEFORE, Loss.DIED_AFTER)


class OneTask(EffectInbox):
    """All of it in the caller's task, so that a process can be made to die at each await."""

    async def _carry_out(self, key: AggregateKey, call: EffectCall, step: EffectChange) -> EffectItem:
        return await self._do(key, call.item, step, asyncio.get_running_loop().create_future())


@dataclass
class Story:
    """One aggregate's messages: 3 comes before 2, 1 comes again, and that of the last event never comes."""

    client: CosmosClient
    database: str
    repeatable: bool = True
    fate: Fate = field(default_factory=no_loss)
    key: AggregateKey = field(default_factory=lambda: AggregateKey("contact", str(uuid4())))
    outbound: Outbound = field(default_factory=Outbound)
    clock: Clock = field(default_factory=Clock)
    refused: set[str] = field(default_factory=set)
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.events = [
            Event(str(uuid4()), self.key, action, place, self.clock.now, {})
            for place, action in enumerate(ACTIONS, start=1)
        ]
        self.inbox = self.start()

    def start(self) -> EffectInbox:
        """A new process, which knows no session."""
        items, sources = (Failing(self.client, self.database, each) for each in (EFFECTS, CONTACTS))
        items.fate = sources.fate = self.fate
        plain, parked = (Container(self.client, self.database, each) for each in (CONTACTS, PARKED))
        self.inbox = OneTask(
            CosmosEffects(items, "mails", int(ITEMS_LIVE.total_seconds())),
            StoredEvents(plain, sources, parked, self.key),
            self.outbound.effect,
            replace(RULES, repeatable=self.repeatable),
            self.clock,
            self.clock.monotonic,
            self.clock.pause,
        )
        return self.inbox

    async def publish(self) -> None:
        assert isinstance(self.inbox.source, StoredEvents)
        for each in self.events:
            await self.inbox.source.put(each)

    async def tell(self) -> None:
        for place in (1, 3, 2, 1):
            await self.receive(self.events[place - 1])
        await self.until_done(lambda: self.inbox.catch_up(self.key, 4))

    async def receive(self, message: Event) -> None:
        try:
            await self.until_done(lambda: self.inbox.handle(message))
        except EffectRefused:
            self.refused.add(message.id)

    async def until_done(self, step: Callable[[], Awaitable[object]]) -> None:
        """The broker brings a message again; a new process knows no session."""
        for _ in range(_ATTEMPTS):
            try:
                await step()
            except ProcessDied:
                self.start()
            except EffectRefused:
                raise
            except InboxError:
                pass
            else:
                return
            self.clock.now += CALL
        raise AssertionError("never done")

    async def check(self, *, once: bool) -> None:
        self.fate.write = sys.maxsize
        with_effect = [each.id for each in self.events if each.action == "Mailed"]
        item = await self.inbox.items.read(self.key, fenced=True)
        assert item is not None
        assert (item.last, item.running) == (4, None)
        assert list(dict.fromkeys(self.outbound.asked)) == [
            each for each in with_effect if each in self.outbound.asked
        ]
        if once or not self.repeatable:
            assert len(set(self.outbound.asked)) == len(self.outbound.asked)
        told = {each.event_id for each in item.open}
        assert set(with_effect) <= set(self.outbound.asked) | told
        if self.repeatable or once:
            assert told == set()


@pytest.fixture
async def make(cosmos_server: Service) -> AsyncIterator[Callable[..., Story]]:
    async with (
        contacts_database(cosmos_server) as database,
        CosmosClient.from_connection_string(cosmos_server.connection_string) as client,
    ):
        yield lambda **given: Story(client, database.id, **given)


@pytest.mark.long
@pytest.mark.parametrize("repeatable", [True, False])
@pytest.mark.parametrize("loss", EACH_LOSS)
async def test_whatever_write_is_lost_the_effects_run_in_order_and_none_is_left_out(
    make: Callable[..., Story], loss: Loss, repeatable: bool
) -> None:
    write, struck = 0, True
    while struck:
        write += 1
        story = make(repeatable=repeatable, fate=Fate(loss, write))
        await story.publish()
        await story.tell()
        struck = story.fate.struck
        await story.check(once=loss not in DIES)
    assert write > 7


@pytest.mark.parametrize("repeatable", [True, False])
async def test_a_process_that_dies_at_any_await_leaves_none_out(
    make: Callable[..., Story], repeatable: bool
) -> None:
    at, died = 0, True
    while died:
        story, died = make(repeatable=repeatable), False
        await story.publish()
        try:
            await CutOff(story.inbox.handle(story.events[2]), at)
        except ProcessDied:
            died = True
            story.start()
            story.clock.now += CALL
        except EffectRefused:
            pass
        await story.tell()
        await story.check(once=not died)
        at += 1
    assert at > 10
