"""The publisher over a topic that fails at every moment: no event overtakes another of its aggregate, none is lost."""

import asyncio
from collections.abc import Sequence
from itertools import count
from typing import Any, cast

from azure.servicebus import ServiceBusMessage
from azure.servicebus._pyamqp.error import ErrorCondition, MessageException
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    OperationTimeoutError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusServerBusyError,
)
from hypothesis import given
from hypothesis import strategies as st

from cosmos_outbox.outbox.cloud_events import CloudEvents
from cosmos_outbox.outbox.publisher import Accepted, Outcome, Refused, Unknown
from cosmos_outbox.servicebus.publisher import ServiceBusPublisher
from cosmos_outbox.servicebus.senders import Limits
from tests.support.publishing import event, publish

OK, LOST, SILENT, BUSY, GONE = "ok", "stored, no answer", "not stored, no answer", "busy", "gone"
LATE, NEVER, SWALLOWED = (
    "stored, no answer in time",
    "not stored, no answer in time",
    "accepted as the time is over",
)
"""The last one: what the SDK calls can lose a cancellation that comes as the answer does (asyncio.wait_for of 3.11)."""
SCRIPTS = st.lists(st.sampled_from([OK, OK, LOST, SILENT, BUSY, GONE, LATE, NEVER, SWALLOWED]), max_size=6)
PAGES = st.lists(st.lists(st.sampled_from([10, 200, 1_000]), min_size=1, max_size=6), min_size=1, max_size=8)
LIMITS = Limits(batch_bytes=4_000, message_bytes=4_000)
"""Small ones, so that a page of few events takes several batches."""


class FakeTopic:
    """Stands in for the senders. Notes what must never happen while it happens."""

    def __init__(
        self, script: Sequence[str], *, refused: set[str], mixes: bool, limits: Limits = LIMITS
    ) -> None:
        self._limits = limits
        self._free = asyncio.Semaphore(3)
        self.stored: list[str] = []
        self.sends = 0
        self._script = list(script)
        self._refused = refused
        self._mixes = mixes
        self._under_way: set[str] = set()
        self.failed: set[str] = set()
        """The contacts of which one send of this page has failed without being a refusal."""
        self.over = False
        """The time of this page is over."""

    async def limits(self, *, batches: int) -> Limits:
        assert batches > 0
        return self._limits

    async def renew(self) -> None:
        """Its limits stay."""

    async def take(self) -> "FakeTopic":
        await self._free.acquire()
        return self

    async def give_back(self, _sender: "FakeTopic") -> None:
        self._free.release()

    async def send(self, messages: Sequence[ServiceBusMessage]) -> None:
        self.sends += 1
        assert not self.over, "something was sent after the time was over"
        contacts = {
            str((message.application_properties or {})["cloudEvents_subject"]) for message in messages
        }
        assert not contacts & self._under_way, "an aggregate is in two batches at once"
        assert not contacts & self.failed, "something was sent after a failure of its aggregate"
        self._under_way |= contacts
        try:
            await asyncio.sleep(0)
            await self._answer([str(message.message_id) for message in messages], contacts)
        finally:
            self._under_way -= contacts

    async def _answer(self, ids: list[str], contacts: set[str]) -> None:
        happens = self._script.pop(0) if self._script else OK
        if len(contacts) > 1 and not self._mixes:
            answer = MessageException(ErrorCondition.NotAllowed)
            raise ServiceBusError("no", error=answer, condition=ErrorCondition.NotAllowed)
        if happens in (OK, LOST, LATE, SWALLOWED) and self._refused & set(ids):
            raise MessageSizeExceededError
        if happens in (OK, LOST, LATE, SWALLOWED):
            self.stored += [event_id for event_id in ids if event_id not in self.stored]
        if happens not in (OK, SWALLOWED):
            self.failed |= contacts
        if happens in (LOST, SILENT):
            raise OperationTimeoutError
        if happens in (LATE, NEVER, SWALLOWED):
            await self._until_over(swallowed=happens == SWALLOWED)
        if happens == BUSY:
            raise ServiceBusServerBusyError
        if happens == GONE:
            raise ServiceBusConnectionError

    async def _until_over(self, *, swallowed: bool) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.over = True
            if not swallowed:
                raise

    def of(self, contact: str) -> list[str]:
        return [event_id for event_id in self.stored if event_id.rpartition("-")[0] == contact]


def check(topic: FakeTopic, contact: str, sent: list[str], refused: set[str], outcome: Outcome) -> None:
    """What the caller is told is true."""
    arrived = topic.of(contact)
    assert arrived == sent[: len(arrived)], "an event is missing or out of order"
    match outcome:
        case Accepted():
            assert arrived == sent
        case Refused(accepted, _):
            assert sent[accepted] in refused
            assert arrived == sent[:accepted]
        case Unknown(accepted, _):
            assert len(arrived) >= accepted


@given(page=PAGES, script=SCRIPTS, mixes=st.booleans(), partitioned=st.booleans(), data=st.data())
def test_whatever_fails_each_aggregate_keeps_its_order_and_its_events(
    page: list[list[int]], script: list[str], mixes: bool, partitioned: bool, data: st.DataObject
) -> None:
    groups = [
        [event(f"a{owner}", number, "x" * size) for number, size in enumerate(sizes, start=1)]
        for owner, sizes in enumerate(page)
    ]
    ids = [one.id for group in groups for one in group]
    refused = data.draw(st.sets(st.sampled_from(ids), max_size=3))
    topic = FakeTopic(script, refused=refused, mixes=mixes)
    publisher = ServiceBusPublisher(
        cast(Any, None), "topic", service=CloudEvents("/test"), partitioned=partitioned, senders=6
    )
    publisher._senders = cast(Any, topic)

    async def until_nothing_is_unknown() -> None:
        for attempt in count():
            topic.failed, topic.over = set(), False
            # Longer each time: a busy machine may need more for the messages alone, and would never end.
            outcomes = await publish(publisher, *groups, within=0.02 * 2**attempt)
            for group, outcome in zip(groups, outcomes, strict=True):
                check(topic, group[0].aggregate.id, [one.id for one in group], refused, outcome)
            if not any(isinstance(outcome, Unknown) for outcome in outcomes):
                return

    asyncio.run(until_nothing_is_unknown())


async def test_one_refused_event_of_a_page_costs_few_sends() -> None:
    """Each halving of a batch of 128 is two sends."""
    topic = FakeTopic([], refused={"a77-1"}, mixes=True, limits=Limits(262_144, 262_144))
    publisher = ServiceBusPublisher(
        cast(Any, None), "topic", service=CloudEvents("/test"), partitioned=False, senders=6
    )
    publisher._senders = cast(Any, topic)
    outcomes = await publish(publisher, *([event(f"a{number}", 1)] for number in range(128)))
    assert [number for number, outcome in enumerate(outcomes) if outcome != Accepted()] == [77]
    assert topic.sends == 1 + 2 * 7
