"""Effects survive the loss of any one write or its answer, with or without the process, on replicas that lag.

One write of a story is lost. The broker brings a message again that was not done, the timer comes by, and
the effects have to be those of a story without the loss: in order, none left out, and one of them twice only where the
process died, or lost an answer, between an effect and its record.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest
from azure.cosmos.aio import CosmosClient

from cosmos_outbox.cosmos.inbox.ledger import CosmosLedger
from cosmos_outbox.inbox.effect import Unsure
from cosmos_outbox.inbox.effect_upkeep import EffectUpkeep
from cosmos_outbox.inbox.effects import EffectInbox
from cosmos_outbox.inbox.errors import InboxError
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from devstack.testing import Service
from tests.support.azure import EFFECTS, contacts_database
from tests.support.effects import RULES, Clock, Outbound, inbox_over
from tests.support.emulators import Gap
from tests.support.inbox import event, notice
from tests.support.losses import WHICH_WRITES, Failing, Fate, Loss, ProcessDied, drawn

_ATTEMPTS = 6


@dataclass
class Story:
    """One aggregate's messages over a store that fails once: 3 comes before 2, and one without a sequence between."""

    key: AggregateKey
    make: Callable[[], CosmosLedger]
    unsure: Unsure
    outbound: Outbound = field(default_factory=Outbound)
    clock: Clock = field(default_factory=Clock)
    inbox: EffectInbox = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """A new process."""
        self.inbox = inbox_over(self.make(), self.outbound, self.clock, replace(RULES, unsure=self.unsure))

    def of(self, sequence: int | None) -> Event:
        return event(sequence, key=self.key, event_id=f"{self.key.id}-{sequence}")

    async def tell(self) -> None:
        for sequence in (1, 3, None, 2, 3, 1, 5):
            await self.receive(self.of(sequence))
        given_up = replace(notice(4), aggregate=self.key, id=f"{self.key.id}-notice")
        await self.receive(given_up)
        await self.receive(self.of(7))
        await self.until_done(self.operate)
        for _ in range(3):
            await self.until_done(self.tend)

    async def receive(self, message: Event) -> None:
        await self.until_done(lambda: self.inbox.handle(message))

    async def operate(self) -> None:
        """An operator who finds another place in the way looks again after the timer has come by."""
        await self.tend()
        await EffectUpkeep(self.inbox).pass_over(self.key, 6, "lost")

    async def tend(self) -> None:
        upkeep = EffectUpkeep(self.inbox)
        await upkeep.tend(self.key, self.inbox.time() + 60)
        self.clock.pass_by(seconds=RULES.call_seconds)

    async def until_done(self, step: Callable[[], Awaitable[None]]) -> None:
        """The broker brings a message again, and an operator repeats a call; a new process knows no session."""
        for _ in range(_ATTEMPTS):
            try:
                await step()
            except ProcessDied:
                self.start()
            except InboxError:
                pass
            else:
                return
            self.clock.pass_by(seconds=RULES.call_seconds)
        raise AssertionError("never done")


@pytest.fixture
async def client(cosmos_server: Service) -> AsyncIterator[CosmosClient]:
    async with CosmosClient.from_connection_string(cosmos_server.connection_string) as opened:
        yield opened


@pytest.mark.long
@pytest.mark.known_gap(Gap.BATCH_IGNORES_ETAG)
@pytest.mark.parametrize("which", WHICH_WRITES)
@pytest.mark.parametrize("unsure", Unsure)
@pytest.mark.parametrize("loss", Loss)
async def test_whatever_write_is_lost_the_effects_run_in_order_and_none_is_left_out(
    cosmos_server: Service,
    client: CosmosClient,
    loss: Loss,
    unsure: Unsure,
    which: Callable[[int], Sequence[int]],
) -> None:
    async with contacts_database(cosmos_server) as database:

        async def told(write: int) -> tuple[Fate, int]:
            """With this write lost (0: none); how many effects ran a second time."""
            fate = Fate(loss, write)

            def make() -> CosmosLedger:
                container = Failing(client, database.id, EFFECTS)
                container.fate = fate
                return CosmosLedger(container, "mails", 600)

            story = Story(AggregateKey("thing", f"{loss.name}-{write}"), make, unsure)
            await story.tell()
            assert fate.struck
            writes, fate.write = fate.writes, 0

            asked = story.outbound.asked
            expected = [story.of(sequence).id for sequence in (1, 2, 3, 5, 7)]
            in_order = [each for each in dict.fromkeys(asked) if each != story.of(None).id]
            again = len(asked) - len(set(asked))
            if unsure is Unsure.RUN_AGAIN:
                assert in_order == expected, f"write {write}"
                assert again <= (write > 0), f"write {write}: {asked}"
            else:
                assert again == 0, f"write {write}: {asked}"
                left_out = len(set(expected) - set(in_order)) + (story.of(None).id not in asked)
                died = write > 0 and loss in (Loss.DIED_BEFORE, Loss.DIED_AFTER)
                assert left_out <= died, f"write {write}: {asked}"
                assert in_order == [each for each in expected if each in in_order], f"write {write}"
            seen = (await story.inbox.ledger.read(story.key, "none", fenced=True)).marker
            assert (seen.last, seen.waiting, seen.running) == (7, 0, None), f"write {write}"
            return replace(fate, writes=writes), again

        whole, _ = await told(0)
        assert whole.writes > 18, "so many writes has the story at least"
        repeated = sum([(await told(write))[1] for write in which(whole.writes)])
        unknown = unsure is Unsure.RUN_AGAIN and loss is Loss.DIED_BEFORE
        assert unknown or not repeated, "an effect runs twice only where its process died before the record"
        assert repeated or not unknown or which is drawn, "and there it does"
