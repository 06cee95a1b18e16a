"""How a subscriber's state is stored, and by what texts a list finds it: the same whatever it is stored in."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from cosmos_outbox.inbox.entry import ListedPage

S = TypeVar("S", bound=BaseModel)

DESCENDING = "-"


@dataclass(frozen=True)
class EntryForm(Generic[S]):
    """How an entry of a read model is written as JSON, and by what a list finds it."""

    model: type[S]
    """Of the entry's state."""
    search: Mapping[str, Callable[[S], str]]
    """The texts, by their names, that entries are searched by. Each is in every entry, since an entry without the text
    would be missing from a list that is sorted by it: a text that is not known is empty."""
    sorted_by: Sequence[str]
    """Those texts by which a list can be sorted, both ways: in Cosmos DB each takes a composite index, with ``/id``."""
    version: int = 1
    """Raise it with every change of the model, of a text in ``search``, or of what either is made from: entries of
    another version are then read from their sources and written again."""

    @property
    def orders(self) -> Sequence[str]:
        """The orders of a list: by each of ``sorted_by``, and with ``-`` before it the last first."""
        return [f"{sign}{name}" for name in self.sorted_by for sign in ("", DESCENDING)]

    def write(self, state: S) -> dict[str, Any]:
        """The state as JSON."""
        return state.model_dump(mode="json", by_alias=True)

    def read(self, item: Mapping[str, Any]) -> S | None:
        """The state in an item, of whichever version; None: it cannot be read, or there is none."""
        try:
            return self.model.model_validate(item.get("data"))
        except ValidationError:
            return None

    def is_of(self, item: Mapping[str, Any]) -> bool:
        """Whether the item was written in this form."""
        return bool(item.get("form") == self.version)

    def texts(self, state: S) -> Mapping[str, str]:
        """What the state is found by."""
        return {name: text(state) for name, text in self.search.items()}


@dataclass(frozen=True)
class Condition:
    """What a listed entry must have."""

    field: str
    """The name of a text in ``EntryForm.search``."""
    text: str
    """As that text is stored: fold its case, say, in the same way."""
    beginning: bool = False
    """True: the stored text begins with this one. False: it is this one."""


class Listing(Protocol[S]):
    """Lists the living entries of one read model: ``service().read_model(declared).listing``."""

    async def page(
        self, conditions: Sequence[Sequence[Condition]], sort: str, size: int, token: str | None
    ) -> ListedPage[S]:
        """At most ``size`` entries, by ``sort`` and id. Of each group one condition must hold.

        ``sort``: one of ``EntryForm.orders``. ``token``: of the page before; None: the first page. Names of texts
        come from the code, never from a caller.

        Raises:
            UnknownContinuation: the token is not of this list.
            Throttled, Unavailable, Misconfigured: a container could not answer.
            StoreAway: a file could not be read.
        """
