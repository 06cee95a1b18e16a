"""What a handler tells by name is believed at once: it is tried no second time, and its record says who decides."""

import pytest

from cosmos_outbox.inbox.errors import EffectFailed, EffectRefused, InboxError, ReactionRefused
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.inbox.set_aside import RecordState
from tests.support.inbox import FakeSetAside, delivery, event
from tests.unit.test_receiver import FakeTime, receiver


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (EffectRefused("it may have been handled"), RecordState.REFUSED),
        (ReactionRefused("the heap is closed"), RecordState.REFUSED),
        (EffectFailed("no such address"), RecordState.WAITING),
    ],
    ids=lambda each: type(each).__name__,
)
async def test_what_was_refused_or_has_failed_for_good_is_tried_once(
    error: InboxError, state: RecordState
) -> None:
    records, clock, tried = FakeSetAside(), FakeTime(), list[str]()

    async def handle(received: Event) -> None:
        tried.append(received.id)
        raise error

    await receiver(handle, records, clock).receive(delivery(event(1)))
    [record] = records.records.values()
    assert (record.state, record.reason, len(tried), clock.now) == (state, str(error), 1, 0)
