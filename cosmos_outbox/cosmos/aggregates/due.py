"""When an aggregate is due stands in its own document, and follows from the state that is stored beside it.

The text sorts as time does: whole seconds in UTC, and never earlier than what the state says.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from cosmos_outbox.cosmos.store.item import Item
from cosmos_outbox.outbox.aggregate import Aggregate, AggregateState
from cosmos_outbox.outbox.errors import Unpublishable

DUE = "due"


def due_field(kind: type[Aggregate[Any]], state: AggregateState) -> Item:
    """The field of the document of an aggregate in this state; none, if it is never due. Raises Unpublishable."""
    stored = kind.load(state)
    due = None if stored.deleted else stored.due
    if due is None:
        return {}
    try:
        return {DUE: due_text(due)}
    except (ValueError, OverflowError) as error:
        raise Unpublishable(
            f"{kind.__name__}.due is no time that can be stored ({error}): let it be one with a zone, such "
            "as datetime.now(UTC) + timedelta(minutes=30), or None for never"
        ) from error


def due_text(at: datetime) -> str:
    """The first whole second that is not before this time. Raises ValueError, OverflowError."""
    if at.tzinfo is None:
        raise ValueError("it has no zone")
    return _written(at.astimezone(UTC) + timedelta(seconds=1 if at.microsecond else 0))


def text_of_now(now: datetime) -> str:
    """What is due by now has this text at most."""
    return _written(now.astimezone(UTC))


def due_time(text: str) -> datetime:
    """The time in a document. Raises ValueError."""
    return datetime.strptime(text, _FORM).replace(tzinfo=UTC)


_FORM = "%Y-%m-%dT%H:%M:%SZ"


def _written(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}".rjust(20, "0")
