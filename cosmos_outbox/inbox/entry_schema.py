"""Defines how a subscriber's state is stored as JSON, and by which texts lists find it, in whichever store."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from cosmos_outbox.inbox.entry import ListedPage

S = TypeVar("S", bound=BaseModel)

DESCENDING = "-"


@dataclass(frozen=True)
class EntrySchema(Generic[S]):
    """The JSON form of a read model's entries, and the texts by which lists find them."""

    model: type[S]
    """The type of an entry's state."""
    search: Mapping[str, Callable[[S], str]]
    """The texts, by their names, that entries are searched by. Each is in every entry, since an entry without the text
    would be missing from a list that is sorted by it: an unknown text is empty."""
    sorted_by: Sequence[str]
    """The texts by which a list can be sorted, both ways: in Cosmos DB each needs a composite index with ``/id``."""
    version: int = 1
    """Raise it with every change of the model, of a text in ``search``, or of what either is made from: entries of
    another version are then read from their sources and written again."""

    def __post_init__(self) -> None:
        """Check that a list is sorted by texts that entries have. Raises ValueError."""
        if unknown := [name for name in self.sorted_by if name not in self.search]:
            raise ValueError(
                f"the form of {self.model.__name__} is sorted by {', '.join(unknown)}, which search= does not have: "
                f"there are {', '.join(self.search)}"
            )

    @property
    def orders(self) -> Sequence[str]:
        """The orders of a list: each of ``sorted_by``, and the same with ``-`` before it, for descending."""
        return [f"{sign}{name}" for name in self.sorted_by for sign in ("", DESCENDING)]

    def write(self, state: S) -> dict[str, Any]:
        """Returns the state as JSON."""
        return state.model_dump(mode="json", by_alias=True)

    def read(self, item: Mapping[str, Any]) -> S | None:
        """Returns the state in an item, of whichever version; None: it cannot be read, or there is none."""
        try:
            return self.model.model_validate(item.get("data"))
        except ValidationError:
            return None

    def is_of(self, item: Mapping[str, Any]) -> bool:
        """Whether the item was written in this form."""
        return bool(item.get("form") == self.version)

    def texts(self, state: S) -> Mapping[str, str]:
        """Returns the texts by which the state is found."""
        return {name: text(state) for name, text in self.search.items()}


@dataclass(frozen=True)
class Condition:
    """A condition that a listed entry must meet."""

    field: str
    """The name of a text in ``EntrySchema.search``."""
    text: str
    """In the stored form: fold its case, for example, in the same way."""
    beginning: bool = False
    """True: the stored text begins with this one. False: it equals this one."""


class Listing(Protocol[S]):
    """Lists the living entries of one read model: ``service().read_model(declared).listing``."""

    async def page(
        self, conditions: Sequence[Sequence[Condition]], sort: str, size: int, token: str | None
    ) -> ListedPage[S]:
        """Returns at most ``size`` entries, ordered by ``sort`` and id. One condition of each group must hold.

        ``sort``: one of ``EntrySchema.orders``. ``token``: of the page before; None: the first page. Names of texts
        come from the code, never from a caller.

        Raises:
            UnknownContinuation: the token is not of this list.
            Throttled, Unavailable, Misconfigured: a container could not answer.
            StoreUnavailable: a file could not be read.
        """
