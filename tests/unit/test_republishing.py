"""A run that has to wait goes on where it was: with what is left, and as it is stored by then."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from cosmos_outbox.outbox.feed import FeedEvent
from cosmos_outbox.outbox.publisher import (
    Accepted,
    AggregateEvents,
    Guarantees,
    Outcome,
    Refused,
    Unknown,
)
from cosmos_outbox.outbox.republish import Republishing, RepublishingProgress, Span, Window
from cosmos_outbox.testing.simulation.bus_publisher import ANYTHING_GOES
from tests.support.fake_parking_lot import FakeParkingLot
from tests.support.feed import contact_key, event_document, read
from tests.support.kept_originals import KeptOriginals
from tests.support.virtual_time import in_virtual_time

A, B = contact_key("a"), contact_key("b")


@dataclass
class Topic:
    """Has an answer for each attempt, and takes everything when there is none left."""

    answers: list[Mapping[str, Outcome]] = field(default_factory=list)
    """By the aggregate's id; it takes what is not among them."""
    offered: list[list[Any]] = field(default_factory=list)
    """Of each attempt the texts of the events."""
    guarantees: Guarantees = ANYTHING_GOES

    async def publish(self, page: Sequence[AggregateEvents], until: float) -> Sequence[Outcome]:
        self.offered.append([each.data["text"] for group in page for each in group.events])
        answers = self.answers.pop(0) if self.answers else {}
        return [answers.get(group.aggregate.id, Accepted()) for group in page]


@dataclass
class OneWindow:
    events: Sequence[FeedEvent]

    async def window(self, span: Span) -> Window:
        return Window(self.events, span.to)


def event(contact: str, sequence: int, text: str) -> FeedEvent:
    return read(event_document(contact, sequence, text=text))


def published(topic: Topic, *events: FeedEvent, mended: FeedEvent | None = None) -> RepublishingProgress:
    """``mended``: what is stored while the run waits."""
    committed, progress = KeptOriginals(), RepublishingProgress()

    async def pause(_: float) -> None:
        if mended is not None:
            committed.stored[mended.id] = mended

    async def run() -> None:
        work = Republishing(
            OneWindow(events), FakeParkingLot(), committed, topic, UUID(int=7), 60.0, 600.0, pause
        )
        assert [reached async for reached in work.publish(Span(0, 1), progress)] == [1]

    in_virtual_time(run())
    return progress


def test_what_the_broker_has_is_neither_sent_nor_counted_again_when_the_rest_is() -> None:
    topic = Topic([{A.id: Unknown(2, "the broker is away"), B.id: Accepted()}])
    progress = published(
        topic, *(event("a", number, f"a{number}") for number in (1, 2, 3)), event("b", 1, "b1")
    )

    assert topic.offered == [["a1", "a2", "a3", "b1"], ["a3"]]
    assert (progress.published, progress.whole) == (4, True)


def test_what_was_refused_is_not_offered_again_while_another_aggregate_waits() -> None:
    """It may be taken by then, and the operator was told that nothing is published from there on."""
    topic = Topic([{A.id: Refused(1, "too large"), B.id: Unknown(0, "the broker is away")}])
    progress = published(
        topic, *(event("a", number, f"a{number}") for number in (1, 2, 3)), event("b", 1, "b1")
    )

    assert topic.offered == [["a1", "a2", "a3", "b1"], ["b1"]]
    assert progress.published == 2
    assert list(progress.skipped) == [A]


def test_what_is_mended_while_the_run_waits_is_published_as_it_is_stored_then() -> None:
    topic = Topic([{A.id: Unknown(0, "the broker is away")}])
    published(topic, event("a", 1, "broken"), mended=event("a", 1, "mended"))

    assert topic.offered == [["broken"], ["mended"]]
