"""Over a webhook that loses answers, is late and fails, the example's receiver ends with each event once, in order."""

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from cosmos_outbox.cosmos.relay.parking_lot import CosmosParkingLot
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.outbox.errors import NotDelivered
from cosmos_outbox.outbox.parking import Parking
from cosmos_outbox.outbox.publisher import CloudEvents
from cosmos_outbox.outbox.refused_alike import RefusedAlike
from cosmos_outbox.outbox.relay import Relay
from cosmos_outbox.webhook import publisher as webhook_publisher
from cosmos_outbox.webhook.publisher import WebhookPublisher
from devstack.testing import eventually
from examples.receiver.app import STRUCTURED, event_of
from examples.receiver.inbox import Inbox, Taken
from tests.support.feed import contact_id, event_document, read
from tests.support.receiver import OK, Answer, Got, receiving, says

EVENTS, CONTACTS = 12, "abcde"


def unreliable(inbox: Inbox, luck: random.Random, late: set[asyncio.Task[None]]) -> Callable[[Got], Answer]:
    """A receiver of which each answer may go wrong, in each way."""

    def take(got: Got) -> Answer:
        taken = inbox.take(event_of(got.body, STRUCTURED))
        return says(409) if taken is Taken.TOO_EARLY else OK

    async def applies_and_closes(got: Got, writer: asyncio.StreamWriter) -> None:
        take(got)
        writer.close()

    async def applies_after_the_sender_has_gone(got: Got, _: asyncio.StreamWriter) -> None:
        async def later() -> None:
            await asyncio.sleep(luck.uniform(0.15, 0.6))
            take(got)

        late.add(asyncio.create_task(later()))
        await asyncio.sleep(0.15)

    odd: list[Answer] = [
        applies_and_closes,
        applies_after_the_sender_has_gone,
        says(500),
        says(429, "Retry-After: 0"),
        says(502, body=b"<html>bad gateway</html>"),
    ]

    def answer(got: Got) -> Answer:
        return take(got) if luck.random() < 0.5 else luck.choices(odd, [2, 2, 3, 1, 1])[0]

    return answer


def nothing_is_given_up(kind: str, name: str) -> None:
    """There is no notice."""
    raise AssertionError(kind, name)


@dataclass
class Time:
    """The wall clock of the relay and of the upkeep."""

    now: datetime = field(default_factory=utc_now)

    def __call__(self) -> datetime:
        return self.now


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2, 3))])
async def test_each_event_is_applied_once_and_in_order(
    lot: CosmosParkingLot, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_publisher, "FIRST_PAUSE_SECONDS", 0.005)
    inbox = Inbox(tmp_path / "receiver.db", nothing_is_given_up)
    luck, late = random.Random(seed), set[asyncio.Task[None]]()
    clock = Time()
    async with receiving(unreliable(inbox, luck, late)) as receiver:
        publisher = WebhookPublisher(
            receiver.target(request_seconds=0.1, concurrency=3), service=CloudEvents("/test")
        )
        relay = Relay(publisher, lot, clock=clock, refused_alike=RefusedAlike(patience_seconds=0.0))
        for first in range(1, EVENTS, 3):
            page = [read(event_document(each, first + more)) for each in CONTACTS for more in range(3)]
            luck.shuffle(page)
            for _ in range(2):  # the feed brings each page twice
                while True:
                    with contextlib.suppress(NotDelivered):
                        await relay.forward(page)
                        break
            clock.now += timedelta(seconds=100)
            await Parking(lot, publisher, clock=clock).upkeep()

        async def all_sent() -> bool:
            clock.now += timedelta(hours=2)
            await Parking(lot, publisher, clock=clock).upkeep()
            return not await lot.list_blocked()

        await eventually(all_sent)
        await asyncio.gather(*late)
        await publisher.close()
    for each in CONTACTS:
        state = inbox.state("contact", contact_id(each))
        assert state is not None
        assert len(state["events"]) == EVENTS
        assert state["sequence"] == EVENTS
