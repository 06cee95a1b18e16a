"""When something is due stands in a team's own document, as a text that sorts as time does, or is not stored.

It is a field of the team's, so whoever writes the document stores, moves or cancels it with all else. What is due would
be lost with a document that expires first: a document with a time lives on for as long as events do.
"""

import inspect
import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from cosmos_outbox.cosmos.store.item import KEEP_FOR_EVER, Item
from cosmos_outbox.cosmos.store.partition_key import OF_EVENTS, at, meet, parts
from cosmos_outbox.outbox.errors import Unpublishable
from cosmos_outbox.settings.own_container import OwnContainer

_FORM = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)")
"""Such a text is not greater than that of a later second (:func:`cosmos_outbox.cosmos.aggregates.due.text_of_now`)."""


@dataclass(frozen=True)
class DueTimes:
    """The times in the documents of a team's own container."""

    declared: OwnContainer

    def __post_init__(self) -> None:
        """Raises ValueError: a path is another's, or what is to happen cannot be done in one transaction."""
        beside = [*self.declared.paths, *filter(None, self.declared.aggregates.values())]
        for path, on_due in self.declared.due.items():
            names, others = parts(path), [*beside, *(self.declared.due.keys() - {path})]
            ours = names[0] in OF_EVENTS or names[0].startswith("_")
            if ours or any(meet(names, parts(other)) for other in others):
                raise ValueError(
                    f"{path} cannot say when something is due: it is a field of the partition key, of a sequence, of "
                    "an event's document or of the store. Name a field of its own"
                )
            if inspect.iscoroutinefunction(on_due):
                raise ValueError(
                    f"what is due at {path} is one transaction, without I/O: make it a plain function"
                )

    @property
    def paths(self) -> Collection[str]:
        """Where documents have a time."""
        return self.declared.due.keys()

    def of(self, item: Item, path: str) -> datetime | None:
        """When the document is due; None: never. Raises ValueError: what stands there is no such time."""
        value = at(item, path)
        if value is None:
            return None
        try:
            if isinstance(value, str) and _FORM.fullmatch(value):
                return datetime.fromisoformat(value)
        except ValueError:  # such as a 13th month
            pass
        raise ValueError(
            f"{path} of document {item['id']} is no time in UTC: write it as 2026-03-01T12:00:00Z, or None for never"
        )

    def check(self, item: Item, now: datetime, seconds_after: int) -> None:
        """Raise Unpublishable for a document with a time that is none, or until which it would not live."""
        for path in self.paths:
            try:
                due = self.of(item, path)
            except ValueError as error:
                raise Unpublishable(str(error)) from None
            ttl = item.get("ttl") or self.declared.default_ttl
            if (
                due is None or ttl == KEEP_FOR_EVER or not isinstance(ttl, int)
            ):  # what is no ttl, the store refuses
                continue
            if (due - now).total_seconds() + seconds_after > ttl:
                raise Unpublishable(
                    f"document {item['id']} may expire before what is due at {path} has happened: give it no ttl, or "
                    f"one that ends {seconds_after} s after that time"
                )
