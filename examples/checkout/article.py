"""What is held for orders and what was sold come from one supply: ``available`` + held + ``sold`` never changes.

An order is held once, and released or sold once; what comes again, or for an order that is not held, changes nothing.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, ClassVar, Literal, Self
from uuid import UUID

from pydantic import Field

from cosmos_outbox import Aggregate, AggregateState, DomainEvent, Timestamp, WireModel, input_rule


def _not_below_zero(pieces: int) -> int:
    if pieces < 0:
        raise ValueError("must not be below 0")
    return pieces


class NewArticle(WireModel):
    """``available``: the pieces that there are."""

    available: Annotated[int, Field(strict=True), input_rule(_not_below_zero)]


class ArticleState(NewArticle, AggregateState):
    """An article as it is stored."""

    id: UUID
    created_at: Timestamp
    held: Mapping[str, int] = {}
    """The pieces by the order that they are held for: of open orders alone."""
    sold: int = 0


class ArticleEvent(DomainEvent):
    """What became of an order's pieces."""

    article_id: UUID
    order_id: UUID


class ArticleHeld(ArticleEvent):
    """The pieces are there, and nobody else gets them."""

    action: Literal["ArticleHeld"] = "ArticleHeld"


class ArticleMissing(ArticleEvent):
    """There are not enough pieces for the order."""

    action: Literal["ArticleMissing"] = "ArticleMissing"


class ArticleReleased(ArticleEvent):
    """The pieces are there for others again."""

    action: Literal["ArticleReleased"] = "ArticleReleased"


class ArticleSold(ArticleEvent):
    """The pieces are the customer's."""

    action: Literal["ArticleSold"] = "ArticleSold"


class Article(Aggregate[ArticleState]):
    """The pieces of an article."""

    aggregate_type: ClassVar[str] = "article"
    state_type: ClassVar[type[AggregateState]] = ArticleState
    created_event, created_payload = "ArticleListed", NewArticle

    @classmethod
    def add(cls, article: NewArticle, *, id: UUID, at: datetime) -> Self:  # noqa: A002 - its id
        """A new article."""
        return cls(ArticleState(**dict(article), id=id, created_at=at), is_new=True)

    @property
    def aggregate_id(self) -> str:
        """The article's id."""
        return str(self.state.id)

    def hold(self, quantity: int, order_id: UUID, *, at: datetime) -> None:
        """Keep pieces for an order, or say that there are too few."""
        state = self.state
        if quantity > state.available:
            self._emit(ArticleMissing, order_id, at)
        else:
            held = {**state.held, str(order_id): quantity}
            self._emit(ArticleHeld, order_id, at, held=held, available=state.available - quantity)

    def release(self, order_id: UUID, *, at: datetime) -> None:
        """Take back that they are held."""
        if quantity := self.state.held.get(str(order_id)):
            available = self.state.available + quantity
            self._emit(ArticleReleased, order_id, at, held=self._without(order_id), available=available)

    def sell(self, order_id: UUID, *, at: datetime) -> None:
        """Those that are held are sold."""
        if quantity := self.state.held.get(str(order_id)):
            sold = self.state.sold + quantity
            self._emit(ArticleSold, order_id, at, held=self._without(order_id), sold=sold)

    def _without(self, order_id: UUID) -> Mapping[str, int]:
        return {each: pieces for each, pieces in self.state.held.items() if each != str(order_id)}

    def _emit(self, event: type[ArticleEvent], order_id: UUID, at: datetime, **update: object) -> None:
        facts = {"article_id": self.state.id, "order_id": order_id, "created_at": at}
        self._raise(lambda sequence: event.model_validate({**facts, "sequence": sequence}), **update)
