"""What the judges have to be told of a service: they know none, and import nothing of it."""

from collections.abc import Mapping
from typing import Any, Protocol

State = Mapping[str, Any]
"""An aggregate as far as its events tell."""

NOTICE = "EventDiscarded"
"""The action of the message in the place of a discarded event."""


class Language(Protocol):
    """How a service's events and answers are to be read. Written by hand from its contract, never from its code."""

    @property
    def created(self) -> str:
        """The action of the event that begins an aggregate."""
        ...

    @property
    def deleted(self) -> str | None:
        """The action of the one that ends it; None: nothing does."""
        ...

    @property
    def aggregate_id(self) -> str:
        """The property of an event's body that names its aggregate."""
        ...

    def after(self, state: State, action: str, body: State) -> State:
        """The aggregate after this event, which is neither its end nor a notice; before the first one it is empty."""
        ...

    def values(self, state: State) -> Mapping[str, Any]:
        """What clients set, of an answer's body or of an aggregate, a part of one included."""
        ...

    def entry(self, state: State) -> Mapping[str, Any]:
        """What the read model shows of an aggregate."""
        ...
