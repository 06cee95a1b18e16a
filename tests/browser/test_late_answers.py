"""An answer that comes late belongs to what was asked then: it changes nothing of what was asked since."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from playwright.async_api import Browser, Page, Route, expect

from tests.browser.fake_service import KEY, FakeService, event
from tests.browser.watched import watched

pytestmark = [pytest.mark.long, pytest.mark.asyncio(loop_scope="module")]

STORED_KEY = "sessionStorage.getItem('operations-key')"


class Held:
    """One call whose answer waits until the test lets it go."""

    def __init__(self, status: int, document: Any) -> None:
        self.asked, self.answer = asyncio.Event(), asyncio.Event()
        self._status, self._document = status, document

    async def __call__(self, route: Route) -> None:
        self.asked.set()
        await self.answer.wait()
        await route.fulfill(
            status=self._status, content_type="application/json", body=json.dumps(self._document)
        )


@asynccontextmanager
async def held(page: Page, pattern: str, status: int, document: Any = None) -> AsyncIterator[Held]:
    """The next call of this pattern is answered at the end of the body, and the page has the answer then."""
    call = Held(status, document)
    await page.route(pattern, call, times=1)
    async with page.expect_event("requestfinished", lambda request: request.url.split("?")[0].endswith(
        pattern.split("?", maxsplit=1)[0].removeprefix("**")
    )):  # fmt: skip
        yield call
        call.answer.set()
    await page.evaluate("new Promise((done) => setTimeout(done))")


async def test_a_late_refusal_of_the_old_key_does_not_take_the_new_one(
    browser: Browser, service: FakeService
) -> None:
    async with watched(browser, f"{service.url}/operations") as page:
        await expect(page.locator("#looked")).to_contain_text(" at ")  # no call is cut off by the reload
        await page.evaluate("sessionStorage.setItem('operations-key', 'the-old-key')")
        await page.reload()
        await expect(page.get_by_role("heading", name="All is well")).to_be_visible()
        async with held(page, "**/instance", 401) as old:
            await page.get_by_role("button", name="Look now").click()
            await asyncio.wait_for(old.asked.wait(), 15)
            service.asks_for_key = True
            await page.get_by_role("button", name="Forget key").click()
            await page.get_by_label("Key", exact=True).fill(KEY)
            await page.get_by_role("button", name="Open").click()
        assert await page.evaluate(STORED_KEY) == KEY
        await expect(page.locator("#board")).to_be_visible()
        await expect(page.get_by_role("heading", name="All is well")).to_be_visible()


async def test_older_events_that_come_late_do_not_mix_with_what_is_shown_since(
    browser: Browser, service: FakeService
) -> None:
    service.answers["events"] |= {"items": [event(9)], "before": 9}
    async with watched(browser, f"{service.url}/operations#events/contact/c") as page:
        rows = page.locator("#events tbody tr")
        await expect(rows).to_have_count(1)
        late = service.answers["events"] | {"items": [event(8)], "before": None}
        async with held(page, "**/events/contact/c?*before=9", 200, late) as older:
            await page.get_by_role("button", name="Older events").click()
            await asyncio.wait_for(older.asked.wait(), 15)
            service.answers["events"] |= {"items": [event(10)], "before": 10}
            await page.get_by_role("button", name="Show").click()
            await expect(rows.first).to_contain_text("10")
        await expect(page.locator("#events-summary")).to_contain_text("1 event and more")
        await expect(rows).to_have_count(1)
        await expect(rows.first).to_contain_text("10")
        await expect(page.get_by_role("button", name="Older events")).to_be_visible()
