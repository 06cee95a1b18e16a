"""A gift adds a line to an order: the giver needs to know no more of the order than its id."""

from datetime import datetime
from typing import ClassVar, Self
from uuid import UUID, uuid4

from cosmos_outbox import Aggregate, AggregateState, Timestamp, WireModel
from examples.orders.events import GIFT_GIVEN, Line


class NewGift(WireModel):
    """What is given, and which order it is for."""

    order_id: UUID
    line: Line


class GiftState(NewGift, AggregateState):
    """A gift as it is stored."""

    id: UUID
    created_at: Timestamp


class Gift(Aggregate[GiftState]):
    """A gift, which nothing changes once it is given."""

    aggregate_type: ClassVar[str] = "gift"
    state_type: ClassVar[type[AggregateState]] = GiftState
    created_event, created_payload = GIFT_GIVEN, NewGift

    @classmethod
    def give(cls, gift: NewGift, *, at: datetime, id: UUID | None = None) -> Self:  # noqa: A002 - its id
        """A new gift, not stored yet. ``at``: when it is given (UTC)."""
        return cls(GiftState(**dict(gift), id=id or uuid4(), created_at=at), is_new=True)

    @property
    def aggregate_id(self) -> str:
        """The gift's id as text; the gift and its event are partitioned by it."""
        return str(self._state.id)
