"""A list has the order that it was asked for, in both directions, and its pages hold while others change contacts."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from azure.cosmos.aio import ContainerProxy

from cosmos_outbox.lists import continuation
from cosmos_outbox.outbox.errors import UnknownContinuation
from cosmos_outbox.outbox.selection import Order, Selection
from domain.contact import Contact
from tests.contract.conftest import CosmosStore
from tests.support.contacts import DETAILS, LATER, NOON

SECONDS = 1.2
"""More than one second of the store's clock."""


async def create(store: CosmosStore, at: datetime = NOON, **details: Any) -> UUID:
    contact = Contact.create(DETAILS.model_copy(update=details), at=at)
    async with store.open() as work:
        work.add(contact)
        await work.commit()
    return contact.id


async def change(store: CosmosStore, contact_id: UUID, text: str) -> None:
    async with store.open() as work:
        (await work.get(Contact, str(contact_id))).aggregate.describe(text, at=LATER)
        await work.commit()


async def pages(store: CosmosStore, size: int, selection: Selection) -> AsyncIterator[Sequence[UUID]]:
    token = None
    while True:
        async with store.open() as work:
            page = await work.page(Contact, size, token, selection)
        assert len(page.items) == size or page.continuation_token is None
        assert len(page.etags) == len(page.items)
        yield [contact.id for contact in page.items]
        if (token := page.continuation_token) is None:
            return


async def listed(store: CosmosStore, selection: Selection, size: int = 2) -> list[UUID]:
    return [each async for page in pages(store, size, selection) for each in page]


async def test_by_creation_the_oldest_or_the_newest_comes_first(store: CosmosStore) -> None:
    ages = (3, 1, 2, 1, 5, 4)
    made = [(NOON - timedelta(hours=age), await create(store, NOON - timedelta(hours=age))) for age in ages]
    wanted = [contact for _, contact in sorted((at, str(contact)) for at, contact in made)]
    assert [str(each) for each in await listed(store, Selection())] == wanted
    assert [str(each) for each in await listed(store, Selection(Order.NEWEST_CREATED))] == wanted[::-1]
    assert [str(each) for each in await listed(store, Selection(Order.CREATED), size=6)] == wanted
    assert len([page async for page in pages(store, 6, Selection())]) == 1, "no page is empty"


async def test_a_list_by_creation_has_changed_items_once_and_new_ones_at_its_end(store: CosmosStore) -> None:
    made = [await create(store, NOON + timedelta(minutes=number)) for number in range(5)]
    seen: list[UUID] = []
    async for page in pages(store, 2, Selection(Order.CREATED)):
        if not seen:
            await change(store, made[0], "seen before")
            await change(store, made[3], "not yet")
            made.append(await create(store, NOON + timedelta(minutes=9)))
        seen += page
    assert seen == made


async def test_a_list_by_change_has_changed_items_again_at_its_newer_end(store: CosmosStore) -> None:
    made = [await create(store)]
    for _ in range(3):
        await asyncio.sleep(SECONDS)
        made.append(await create(store))
    oldest, seen = pages(store, 2, Selection(Order.CHANGED)), list[UUID]()
    seen += await anext(oldest)
    await asyncio.sleep(SECONDS)
    await change(store, made[0], "x")
    seen += [each async for page in oldest for each in page]
    assert seen == [*made, made[0]], "none is lost, and what changed comes again"
    newest = [made[0], made[3], made[2], made[1]]
    assert await listed(store, Selection(Order.NEWEST_CHANGED)) == newest
    begun = pages(store, 2, Selection(Order.NEWEST_CHANGED))
    assert await anext(begun) == newest[:2]
    await change(store, made[1], "x")
    assert [each async for page in begun for each in page] == [made[2]], "it is before the first page now"


async def test_a_list_is_filtered_by_email_by_ids_and_by_time_of_change(store: CosmosStore) -> None:
    ann, bob, cid = [await create(store, email=f"{name}@example.com") for name in ("ann", "bob", "cid")]
    same = await create(store, NOON + timedelta(1), email="ann@example.com")
    of_ann = {"email": "ann@example.com"}
    assert await listed(store, Selection(equal=of_ann), size=1) == [ann, same]
    assert await listed(store, Selection(equal={"email": "Ann@example.com"})) == []
    wanted = [str(bob), str(same), "0f8fad5b-d9cb-469f-a165-70867728950e"]
    assert await listed(store, Selection(ids=wanted), size=1) == [bob, same]
    assert await listed(store, Selection(ids=[str(ann), str(bob)], equal=of_ann)) == [ann]
    assert await listed(store, Selection(ids=[])) == []
    await asyncio.sleep(SECONDS)
    await change(store, cid, "x")
    async with store.open() as work:
        last = (await work.page(Contact, 1, None, Selection(Order.NEWEST_CHANGED))).items[0]
    assert last.id == cid
    since = datetime.now(NOON.tzinfo)
    assert await listed(store, Selection(changed_since=since - timedelta(hours=1), ids=[str(cid)])) == [cid]
    assert await listed(store, Selection(changed_since=since + timedelta(hours=1))) == []
    everyone = await listed(store, Selection(changed_since=since - timedelta(hours=1)))
    assert {*everyone} == {ann, bob, cid, same}


async def test_what_is_deleted_is_on_no_list(store: CosmosStore) -> None:
    gone, here = await create(store), await create(store)
    async with store.open() as work:
        (await work.get(Contact, str(gone))).aggregate.delete(at=LATER)
        await work.commit()
    for order in Order:
        assert await listed(store, Selection(order)) == [here]


FORGED = [
    "x", "{}", '{"a": 1, "b": 2}', '"ab"', "[]", "null", '["a"]', '["a", "b", "c"]', '[1, "a"]', '["a", 1]',
    '["\\ud800", "a"]', '["a", "\\ud800"]', '[true, "a"]', '[[], "a"]', "[" * 3000, '["a", null]',
    f'["{"a" * 300}", "a"]',
]  # fmt: skip


async def test_a_token_that_somebody_made_for_the_list_is_refused(store: CosmosStore) -> None:
    await create(store)
    scope = 'test/["contact", "created", [], null, null]'
    async with store.open() as work:
        for content in FORGED:
            with pytest.raises(UnknownContinuation):
                await work.page(Contact, 1, continuation.seal(scope, content))
        good = continuation.seal(scope, '["", ""]')
        assert (await work.page(Contact, 1, good)).items, "the scope is the list's"


async def test_a_token_of_a_time_that_no_store_has_is_refused(store: CosmosStore) -> None:
    await create(store)
    selection, scope = Selection(Order.CHANGED), 'test/["contact", "changed", [], null, null]'
    async with store.open() as work:
        good = continuation.seal(scope, '[7, "a"]')
        assert (await work.page(Contact, 1, good, selection)).items, "the scope is the list's"
        for key in ('"x"', "-1", str(2**53 + 1), "null", "true"):
            with pytest.raises(UnknownContinuation):
                await work.page(Contact, 1, continuation.seal(scope, f'[{key}, "a"]'), selection)


async def test_a_token_is_of_one_order_and_one_choice(store: CosmosStore) -> None:
    for _ in range(2):
        await create(store)
    async with store.open() as work:
        token = (await work.page(Contact, 1, None, Selection(Order.CREATED))).continuation_token
        assert (await work.page(Contact, 1, token)).items, "which is the order unless another is asked for"
        for other in (
            Selection(Order.NEWEST_CREATED),
            Selection(Order.CHANGED),
            Selection(equal={"email": "x"}),
        ):
            with pytest.raises(UnknownContinuation):
                await work.page(Contact, 1, token, other)


EVIL = "'or'1=1@example.com"


async def test_nothing_of_a_request_is_in_the_text_of_a_query(
    store: CosmosStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    query_items = ContainerProxy.query_items

    def noting(self: ContainerProxy, query: str, **named: Any) -> Any:
        asked.append(query)
        return query_items(self, query, **named)

    monkeypatch.setattr(ContainerProxy, "query_items", noting)
    for _ in range(2):
        await create(store, email=EVIL)
    chosen = Selection(Order.NEWEST_CREATED, {"email": EVIL}, ["' OR '1'='1"], NOON - timedelta(days=1))
    assert await listed(store, chosen) == []
    assert len(await listed(store, Selection(equal=chosen.equal), size=1)) == 2
    assert asked
    assert not [text for text in asked if "1=1" in text or "'" in text or '"' in text or "2026" in text]
