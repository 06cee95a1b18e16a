"""The page over the real service, with keys as in Azure: what its buttons do is done in the store and at the topic."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from azure.cosmos.aio import CosmosClient
from playwright.async_api import Browser, Locator, Page, expect

from devstack.testing import Stack
from tests.browser.watched import WIDE, watched
from tests.support.paths import ROOT
from tools.screenshot.stage import Stage, staged

pytestmark = [pytest.mark.long, pytest.mark.timeout(120), pytest.mark.asyncio(loop_scope="module")]

MASTER, FUNCTION = "the-master-key", "the-function-key"
MANY = 10_000
TOPIC = "contact-events"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    """The contact service, whose host asks for keys."""
    settings = {
        "PYTHONPATH": str(ROOT),
        "RELAY_SEND_SECONDS": "5",
        "DEVSTACK_MASTER_KEY": MASTER,
        "DEVSTACK_FUNCTION_KEY": FUNCTION,
        # A timer that comes at some second would do what the operator is about to do.
        "AzureWebJobs.tend_parked.Disabled": "true",
        "AzureWebJobs.watch_contact_directory.Disabled": "true",
        "AzureWebJobs.watch_relay.Disabled": "true",
    }
    with Stack(tmp_path_factory.mktemp("stack"), settings) as started:
        started.make(ROOT)
        started.run(ROOT, "--keys")
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(stack: Stack) -> AsyncIterator[Stage]:
    async with staged(stack, TOPIC, key=MASTER) as ready:
        yield ready


@pytest_asyncio.fixture(loop_scope="module")
async def page(browser: Browser, stage: Stage) -> AsyncIterator[Page]:
    """The page, opened with the master key."""
    async with watched(browser, f"{stage.url}/operations", size=WIDE) as opened:
        await sign_in(opened, MASTER)
        await expect(opened.locator("#banner-title")).not_to_have_text("Looking …")
        yield opened


async def sign_in(page: Page, key: str) -> None:
    await page.get_by_label("Key", exact=True).fill(key)
    await page.get_by_role("button", name="Open").click()


def row_of(page: Page, text: str) -> Locator:
    return page.locator("#stuck tbody tr").filter(has_text=text)


async def consent(page: Page, last: str, reason: str | None = None) -> None:
    if reason:
        await page.get_by_label("Reason").fill(reason)
    await page.get_by_role("button", name=last, exact=True).click()


async def done(page: Page, text: str) -> None:
    await expect(page.locator("#work-list > li").first).to_contain_text(text, timeout=15_000)


async def look(page: Page) -> None:
    await page.get_by_role("button", name="Look now").click()


async def test_the_operations_page_is_public_and_its_calls_need_the_master_key(
    browser: Browser, stage: Stage
) -> None:
    async with aiohttp.ClientSession() as http:
        async with http.get(f"{stage.url}/operations") as answer:
            assert (answer.status, answer.headers["X-Content-Type-Options"]) == (200, "nosniff")
        for call in ("relay", "instance", "dependencies", "events/contact/x", "stuck", "subscribers"):
            for headers in ({}, {"x-functions-key": FUNCTION}):
                async with http.get(f"{stage.url}/{call}", headers=headers) as answer:
                    assert (answer.status, await answer.read()) == (401, b"")
    async with watched(browser, f"{stage.url}/operations") as page:
        await sign_in(page, FUNCTION)
        await expect(page.get_by_text("refused this key")).to_be_visible()
        await sign_in(page, MASTER)
        await expect(page.get_by_role("heading", name="All is well")).to_be_visible()
        await expect(page.locator("#health")).to_contain_text("Service Bus")
        await expect(page.locator("#service-name")).to_have_text("· contact")


async def test_a_contact_is_followed_parked_replayed_and_discarded(page: Page, stage: Stage) -> None:
    contact_id = await stage.park(behind=1)
    await look(page)
    blocker = row_of(page, contact_id).filter(has_text="in the way")
    await expect(blocker).to_contain_text("larger than the topic takes")
    await blocker.get_by_role("button", name="Events of").click()
    rows = page.locator("#events tbody tr")
    await expect(rows).to_have_count(3)
    texts = await rows.all_inner_texts()
    assert [word in text for word, text in zip(("parked", "parked", "sent"), texts, strict=True)] == [
        True
    ] * 3
    await blocker.get_by_role("button", name="Retry").click()
    await consent(page, "Retry 1")
    await done(page, "cannot be sent: the message is larger than the topic takes")
    await blocker.get_by_role("button", name="Discard").click()
    await consent(page, "Discard 1", "made by a test")
    await done(page, "discarded")
    await row_of(page, contact_id).first.get_by_role("button", name="Retry").click()
    await consent(page, "Retry 1")
    await done(page, "2 sent or applied")  # the skip marker and the event behind it
    await expect(row_of(page, contact_id)).to_have_count(0)
    await page.get_by_role("button", name="Show").click()
    await expect(rows.filter(has_text="discarded")).to_have_count(1)
    await expect(rows.filter(has_text="parked")).to_have_count(0)


async def test_messages_that_are_set_aside_are_applied_and_discarded(page: Page, stage: Stage) -> None:
    await stage.refuse_a_message()
    repair = await stage.break_an_entry()
    await look(page)
    rows = page.locator("#stuck tbody tr").filter(has_text="message at")
    await expect(rows).to_have_count(2)
    waiting = rows.filter(has_text="is tried again")
    await waiting.get_by_role("button", name="Retry").click()
    await consent(page, "Retry 1")
    await done(page, "409")
    await repair()
    await waiting.get_by_role("button", name="Retry").click()
    await consent(page, "Retry 1")
    await done(page, "1 sent or applied")
    await rows.filter(has_text="refused").get_by_role("button", name="Discard").click()
    await consent(page, "Discard 1", "junk")
    await done(page, "discarded")
    await expect(rows).to_have_count(0)


async def fill(stack: Stack) -> None:
    """Documents that belong to no contact, as the relay parks them."""
    at = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    async with CosmosClient.from_connection_string(stack.cosmos.connection_string) as client:
        lot = client.get_database_client("contacts").get_container_client("parked-events")
        for _ in range(MANY // 100):
            items: list[dict[str, Any]] = [
                {
                    "id": uuid.uuid4().hex, "partitionKey": "parked", "type": "parkedEvent", "eventId": "none",
                    "aggregateType": None, "aggregateId": None, "contactId": None, "action": None, "sequence": None,
                    "reason": "the document has no valid aggregate type and id", "parkedAt": at, "document": {},
                }
                for _ in range(100)
            ]  # fmt: skip
            await lot.execute_item_batch([("create", (item,)) for item in items], "parked")


async def test_a_missing_lease_is_said(page: Page, stack: Stack) -> None:
    async with CosmosClient.from_connection_string(stack.cosmos.connection_string) as client:
        leases = client.get_database_client("contacts").get_container_client("leases")
        found = [item async for item in leases.read_all_items()]
        gone: list[dict[str, Any]] = [item for item in found if "LeaseToken" in item]
        for item in gone:
            await leases.delete_item(item["id"], partition_key=item["id"])
        await look(page)
        await expect(page.locator("#findings")).to_contain_text("No lease for 1 partition (0)")
        for item in gone:
            await leases.create_item(
                {name: value for name, value in item.items() if not name.startswith("_")}
            )


async def test_the_page_goes_through_an_outage_of_the_store(page: Page, stack: Stack) -> None:
    await expect(page.locator("#leases tbody tr")).to_have_count(1)
    stack.cosmos.kill()
    await look(page)
    await expect(page.locator("#findings")).to_contain_text("Cosmos DB cannot be used", timeout=30_000)
    await expect(page.locator("#relay-problem")).to_contain_text("Not known now", timeout=30_000)
    await expect(page.locator("#leases tbody tr")).to_have_count(1)
    await asyncio.to_thread(stack.cosmos.start)
    await look(page)
    await expect(page.locator("#findings")).not_to_contain_text("Cosmos DB", timeout=30_000)
    await expect(page.locator("#relay-problem")).to_be_hidden()
