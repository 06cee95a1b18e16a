"""An operator gave a message up: its effect is not run afterwards, whoever brings the message again."""

from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from cosmos_outbox.inbox.effect import EffectMarker, Mark, MarkState
from cosmos_outbox.inbox.effect_upkeep import EffectUpkeep
from cosmos_outbox.inbox.effects import EffectInbox
from cosmos_outbox.inbox.errors import (
    EffectRunning,
    NotApplied,
    NotInTurn,
    NotSetAside,
    RecordChanged,
    StoreAway,
)
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.inbox.receiver import Receiver
from cosmos_outbox.inbox.retrier import Retrier
from cosmos_outbox.inbox.set_aside import RecordState
from tests.support.effects import Clock, FakeLedger, Outbound, inbox_over
from tests.support.inbox import KEY, NOON, FakeSetAside, Faults, delivery, event, read


@dataclass
class Mails:
    """A subscriber with effects, whose handler is broken while ``bug`` is set."""

    ledger: FakeLedger = field(default_factory=FakeLedger)
    records: FakeSetAside = field(default_factory=FakeSetAside)
    outbound: Outbound = field(default_factory=Outbound)
    clock: Clock = field(default_factory=Clock)
    bug: bool = False

    def __post_init__(self) -> None:
        self.inbox: EffectInbox = inbox_over(self.ledger, self.outbound, self.clock)
        give_up = EffectUpkeep(self.inbox).give_up

        self.receiver = Receiver(read, self.handle, self.records, now=self.clock)
        self.retrier = Retrier(read, self.handle, self.records, timedelta(days=10), self.clock, give_up)

    async def handle(self, received: Event) -> None:
        if self.bug:
            raise ZeroDivisionError
        await self.inbox.handle(received)

    async def set_aside(self, received: Event) -> str:
        """A message that was set aside, by a version with a bug. Returns the record's id."""
        self.bug = True
        await self.receiver.receive(delivery(received))
        self.bug = False
        return next(each.id for each in self.records.records.values() if each.event_id == received.id)

    def mark(self, received: Event) -> Mark | None:
        _, marks = self.ledger.versions.get(received.aggregate, [(None, {})])[-1]
        return marks.get(received.id)


async def test_a_message_that_comes_again_after_its_record_was_discarded_runs_no_effect() -> None:
    """The answer to its completion was lost, or the host stopped: the broker brings it once more."""
    mails = Mails()
    record = await mails.set_aside(event(1))
    await mails.retrier.discard(record, "the order was cancelled")
    await mails.receiver.receive(delivery(event(1)))
    await mails.receiver.receive(delivery(event(1), 2))  # and so does another message of the same event
    assert mails.outbound.asked == []
    assert list(mails.records.states().values()) == [RecordState.DISCARDED]
    found = mails.mark(event(1))
    assert found is not None
    assert (found.state, found.reason) == (MarkState.DISCARDED, "the order was cancelled")


async def test_the_event_after_a_discarded_one_goes_on_without_waiting() -> None:
    mails = Mails()
    record = await mails.set_aside(event(1))
    await mails.receiver.receive(delivery(event(2)))
    assert mails.outbound.asked == []
    await mails.retrier.discard(record, "never mind")
    await EffectUpkeep(mails.inbox).run(seconds=60)
    assert mails.outbound.asked == [event(2).id]


async def test_an_event_without_a_sequence_is_given_up_by_its_id() -> None:
    mails = Mails()
    record = await mails.set_aside(event(None))
    await mails.retrier.discard(record, "never mind")
    await mails.receiver.receive(delivery(event(None)))
    await mails.receiver.receive(delivery(event(None, event_id="another")))
    assert mails.outbound.asked == ["another"]


async def test_what_comes_before_a_discarded_event_is_not_left_out() -> None:
    """Its place is given up when it is the next, by an operator or by age, as a place whose event never came."""
    mails = Mails()
    record = await mails.set_aside(event(2))
    await mails.retrier.discard(record, "never mind")
    for each in (event(3), event(1), event(2)):
        await mails.receiver.receive(delivery(each))
    assert mails.outbound.asked == [event(1).id]
    await EffectUpkeep(mails.inbox).pass_over(KEY, 2, "it was discarded")
    await EffectUpkeep(mails.inbox).run(seconds=60)
    assert mails.outbound.asked == [event(1).id, event(3).id]


async def test_an_event_that_waits_in_the_ledger_too_is_discarded_in_its_turn_alone() -> None:
    mails = Mails()
    record = await mails.set_aside(event(2))
    await mails.inbox.handle(event(2))
    with pytest.raises(NotInTurn, match="place 1 comes first"):
        await mails.retrier.discard(record, "never mind")
    assert list(mails.records.states().values()) == [RecordState.WAITING]
    await EffectUpkeep(mails.inbox).pass_over(KEY, 1, "it is lost")
    await mails.retrier.discard(record, "never mind")
    await EffectUpkeep(mails.inbox).run(seconds=60)
    await mails.receiver.receive(delivery(event(2)))
    assert mails.outbound.asked == []


async def test_an_effect_that_runs_in_the_place_of_a_discarded_event_keeps_its_place() -> None:
    mails, other = Mails(), event(1, event_id="other")
    record = await mails.set_aside(event(1))
    started = Mark(other.id, MarkState.STARTED, 1, NOON, by="a call")
    await mails.ledger.write(KEY, EffectMarker(running=other.id), started)
    await mails.retrier.discard(record, "never mind")
    await mails.receiver.receive(delivery(event(1)))
    marker, _ = mails.ledger.versions[KEY][-1]
    assert (mails.outbound.asked, marker.running, marker.last) == ([], other.id, None)


async def test_the_message_of_a_record_may_be_at_its_effect_while_the_operator_discards_it() -> None:
    mails = Mails()
    record = await mails.set_aside(event(1))
    started = Mark(event(1).id, MarkState.STARTED, 1, NOON, by="the redelivery")
    seen = await mails.ledger.read(KEY, event(1).id, fenced=True)
    await mails.ledger.write(KEY, seen.marker, started)
    with pytest.raises(EffectRunning):
        await mails.retrier.discard(record, "never mind")
    assert list(mails.records.states().values()) == [RecordState.WAITING]


async def test_an_operator_is_told_when_the_effect_has_run_already() -> None:
    mails = Mails()
    record = await mails.set_aside(event(1))
    await mails.receiver.receive(delivery(event(1)))
    with pytest.raises(NotApplied, match="has run"):
        await mails.retrier.discard(record, "never mind")
    await mails.retrier.run(seconds=60)
    assert (mails.outbound.asked, list(mails.records.states().values())) == (
        [event(1).id],
        [RecordState.APPLIED],
    )


async def test_a_record_of_a_place_that_is_passed_is_closed() -> None:
    mails = Mails()
    record = await mails.set_aside(event(1))
    await EffectUpkeep(mails.inbox).pass_over(KEY, 1, "an operator passed it")
    await mails.retrier.discard(record, "never mind")
    await mails.receiver.receive(delivery(event(1)))
    assert mails.outbound.asked == []
    assert mails.ledger.versions[KEY][-1][0].last == 1


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("call", range(4))
@pytest.mark.parametrize("lost", [RecordChanged, StoreAway])
async def test_no_effect_runs_after_a_discard_that_was_repeated_until_it_was_done(
    call: int, lost: type[Exception], after: bool
) -> None:
    """The operator repeats a call that failed, whichever of its steps was lost; then the message comes again."""
    faults = Faults()
    mails = Mails(FakeLedger(faults), FakeSetAside(faults))
    record = await mails.set_aside(event(1))
    faults.at = {faults.calls + call: (lost, after)}
    for _ in range(3):
        with suppress(StoreAway, RecordChanged, NotSetAside):
            await mails.retrier.discard(record, "never mind")
    await mails.receiver.receive(delivery(event(1)))
    await mails.retrier.run(seconds=60)
    assert mails.outbound.asked == []


async def test_a_record_that_is_no_event_or_of_a_read_model_is_discarded_alone() -> None:
    mails = Mails()
    await mails.receiver.receive(delivery(None))
    [refused] = mails.records.records
    await mails.retrier.discard(refused, "no event")
    assert list(mails.records.states().values()) == [RecordState.DISCARDED]
    assert mails.ledger.versions == {}
