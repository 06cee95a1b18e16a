"""An original is read no oftener than it must be, and what comes of the reading is told as it is.

What only a store can prove is in ``tests/contract/test_originals.py``.
"""

import logging
from typing import Any

import pytest

from cosmos_outbox.cosmos.aggregates.documents import digest
from cosmos_outbox.cosmos.relay import originals as module
from cosmos_outbox.cosmos.relay.originals import CosmosOriginals
from cosmos_outbox.cosmos.store.item import Item
from cosmos_outbox.cosmos.store.partition_key import Key
from cosmos_outbox.cosmos.store.writes import Write
from cosmos_outbox.outbox.feed import FeedEvent, Poison
from cosmos_outbox.testing.documents import MemoryContainer
from tests.support.feed import EVENTS, event_document, read

NO_DIGESTS = [event_document(name, 1) for name in "abc"]
"""Others stored them, without a digest: each is read again."""


class Stored(MemoryContainer):
    """Tells what was read."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, Key]] = []

    async def read(self, item_id: str, partition_key: Key, *, consistent: bool = False) -> Item | None:
        self.asked.append((item_id, partition_key))
        return await super().read(item_id, partition_key, consistent=consistent)

    async def put(self, *items: Item) -> None:
        for item in items:
            plain = {name: value for name, value in item.items() if not name.startswith("_")}
            await self.execute(item["partitionKey"], [Write.upsert(plain)])


@pytest.fixture
def stored() -> Stored:
    return Stored()


@pytest.fixture
def originals(stored: Stored) -> CosmosOriginals:
    return CosmosOriginals(stored, EVENTS)


async def verified(originals: CosmosOriginals, item: Item) -> FeedEvent:
    [event] = await originals.verify([read(item)])
    return event


def ids(*items: Item) -> list[str]:
    return [item["id"] for item in items]


async def test_it_is_logged_once_a_minute_that_documents_are_read_again_and_only_when_some_are(
    stored: Stored, originals: CosmosOriginals, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger=module.__name__)
    whole = event_document("whole", 1)
    a, b, _ = NO_DIGESTS
    await stored.put(a, b)
    await verified(originals, whole | {"digest": digest(whole)})
    assert caplog.messages == []
    await originals.verify([read(a), read(whole | {"digest": digest(whole)})])
    await verified(originals, b)
    [told] = caplog.messages
    assert told.startswith("read 1 of 2 event(s) again:")


async def test_of_more_documents_than_are_kept_the_one_that_was_read_first_is_read_again(
    stored: Stored, originals: CosmosOriginals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_KEPT", 2)
    a, b, c = NO_DIGESTS
    await stored.put(a, b, c)
    for item in (a, b, a, b, c, b, c, a):
        await verified(originals, item)
    assert [item_id for item_id, _ in stored.asked] == ids(a, b, c, a)


@pytest.mark.parametrize("names", [{"id": ""}, {"id": 5}, {"partitionKey": None}, {"partitionKey": {}}])
async def test_what_has_no_id_or_no_partition_key_is_not_looked_for(
    stored: Stored, originals: CosmosOriginals, names: dict[str, Any]
) -> None:
    delivered = read(event_document("a", 1) | names)
    [event] = await originals.verify([delivered])
    assert isinstance(event, Poison)
    assert stored.asked == []


async def test_what_has_become_another_document_is_never_sent(
    stored: Stored, originals: CosmosOriginals
) -> None:
    item = event_document("a", 1)
    await stored.put(item | {"type": "note"})
    event = await verified(originals, item)
    assert isinstance(event, Poison)
    assert event.reason == "unverified: the stored document is no event any more"


async def test_a_document_that_is_broken_in_the_store_too_is_shown_as_it_is_stored(
    stored: Stored, originals: CosmosOriginals
) -> None:
    """A digest that nobody stored would say that it is as it was committed."""
    broken = event_document("a", 1) | {"data": {"broken": 1}}
    await stored.put(broken)
    event = await verified(originals, broken)
    assert isinstance(event, Poison)
    assert "digest" not in event.document


async def test_a_broken_document_that_is_gone_keeps_the_reason_why_it_is_broken(
    originals: CosmosOriginals,
) -> None:
    broken = read(event_document("a", 1) | {"data": {"broken": 1}})
    assert isinstance(broken, Poison)
    [event] = await originals.verify([broken])
    assert event == broken


class NotAskedFor(Stored):
    """Of some names the SDK makes no request: it says so before it sends anything."""

    async def read(self, item_id: str, partition_key: Key, *, consistent: bool = False) -> Item | None:
        raise ValueError("Id contains illegal chars.")


async def test_a_name_that_the_sdk_asks_for_never_holds_up_no_page() -> None:
    found = await verified(CosmosOriginals(NotAskedFor(), EVENTS), NO_DIGESTS[0])
    assert isinstance(found, Poison)
    assert "cannot be one" in found.reason
