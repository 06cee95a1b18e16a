"""The key of a container's lists is the stored one, whoever made it, and a store that fails is told as what it is."""

import pytest

from cosmos_outbox.cosmos.store.container import StoreFailed
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.cosmos.store.item import Item
from cosmos_outbox.cosmos.store.partition_key import Key
from cosmos_outbox.cosmos.store.token_key import token_key
from cosmos_outbox.outbox.errors import Throttled, Unavailable
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.testing.documents import MemoryContainer


class Scripted(MemoryContainer):
    """Calls fail, or see less than there is."""

    reads: Failure | None = None
    creates: Failure | None = None
    old_reads = 0
    """So many reads see nothing yet."""

    async def read(self, item_id: str, partition_key: Key) -> Item | None:
        if self.reads is not None:
            raise StoreFailed(self.reads)
        if self.old_reads:
            self.old_reads -= 1
            return None
        return await super().read(item_id, partition_key)

    async def create(self, item: Item) -> None:
        if self.creates is not None:
            raise StoreFailed(self.creates)
        await super().create(item)


async def test_of_two_processes_that_make_a_key_at_once_both_have_the_stored_one() -> None:
    container = Scripted()
    closed = await token_key(container).close("a list", "where it stands")
    container.old_reads = 1  # another process has looked before
    assert await token_key(container).open("a list", closed) == "where it stands"


async def test_a_key_is_read_once() -> None:
    container = Scripted()
    key = token_key(container)
    closed = await key.close("a list", "where it stands")
    container.reads = Failure(Kind.PASSING, "503/0")
    assert await key.open("a list", closed) == "where it stands"


@pytest.mark.parametrize("call", ["reads", "creates"])
@pytest.mark.parametrize(
    ("kind", "error"),
    [(Kind.THROTTLED, Throttled), (Kind.PASSING, Unavailable), (Kind.INVALID, Misconfigured)],
)
async def test_a_store_that_fails_gives_no_key(call: str, kind: Kind, error: type[Exception]) -> None:
    container = Scripted()
    setattr(container, call, Failure(kind, "injected"))
    with pytest.raises(error):
        await token_key(container).close("a list", "where it stands")


async def test_a_key_that_was_just_made_and_cannot_be_read_is_asked_for_again_later() -> None:
    container = Scripted()
    container.old_reads = 2
    key = token_key(container)
    with pytest.raises(Unavailable, match="cannot be read"):
        await key.close("a list", "where it stands")
    assert await key.open("a list", await key.close("a list", "here")) == "here"
