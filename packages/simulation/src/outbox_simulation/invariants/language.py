"""Describes a service's events and answers to the judges, which know no service and import nothing of it."""

from collections.abc import Mapping
from typing import Any, Protocol

State = Mapping[str, Any]
"""An aggregate as far as its events describe it."""

SKIP_MARKER = "EventDiscarded"
"""The action of the message in the place of a discarded event."""


class Language(Protocol):
    """The meaning of a service's events and answers. Written by hand from its contract, never from its code."""

    @property
    def created(self) -> str:
        """The action of the event that begins an aggregate."""
        ...

    @property
    def deleted(self) -> str | None:
        """The action of the event that ends it; None: no event does."""
        ...

    @property
    def aggregate_id(self) -> str:
        """The property of an event's body that names its aggregate."""
        ...

    def after(self, state: State, action: str, body: State) -> State:
        """Returns the aggregate after an event that is no deletion and no skip marker; before the first it is empty."""
        ...

    def values(self, state: State) -> Mapping[str, Any]:
        """Returns the values that clients set, of an answer's body or of an aggregate, even of a part."""
        ...

    def entry(self, state: State) -> Mapping[str, Any]:
        """Returns the read model's view of an aggregate."""
        ...
