"""The page at /api/docs is read and tried in a real browser: under its policy, with a key that is entered once."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Request, expect

from tests.browser.watched import problems_for_a_screen_reader
from tests.e2e.conftest import Stack, stack

pytestmark = [pytest.mark.long, pytest.mark.timeout(180), pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    folder: Path = tmp_path_factory.mktemp("stack")
    with stack(folder) as started:
        yield started


async def test_a_call_is_tried_with_a_key_that_stays_in_the_pages_memory(
    browser: Browser, running: Stack
) -> None:
    page = await browser.new_page()
    said: list[str] = []
    asked: list[Request] = []
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: said.append(str(error)))

    def noted(request: Request) -> None:
        asked.append(request)

    page.on("request", noted)
    await page.goto(f"{running.url}/docs")
    await expect(page.locator("#operations-contacts-list_contacts")).to_be_visible()

    await page.get_by_role("button", name="Authorize").first.click()
    await (
        page.get_by_label("auth-bearer-value").or_(page.locator("section input").first).first.fill("the-key")
    )
    await page.locator(".auth-btn-wrapper .authorize").first.click()
    await page.locator(".auth-btn-wrapper .btn-done").first.click()
    await page.locator("#operations-contacts-list_contacts .opblock-summary-control").click()
    await page.locator("#operations-contacts-list_contacts .execute").click()
    answer = page.locator("#operations-contacts-list_contacts .live-responses-table .response-col_status")
    await expect(answer.get_by_text("200").first).to_be_visible()

    [tried] = [each for each in asked if "/api/contacts" in each.url]
    assert (await tried.all_headers())["x-functions-key"] == "the-key"
    assert tried.url == f"{running.url}/contacts?pageSize=50&sort=created", "no example is a filter"
    await expect(page.locator(".opblock-tag").first).to_have_attribute("data-tag", "contacts")
    kept = await page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])")
    assert kept == '[{},{},""]'
    origin = running.url.removesuffix("/api")
    assert [each.url for each in asked if not each.url.startswith((origin, "data:"))] == []
    assert said == [], "nothing of the page is against its policy"
    await page.reload()
    await expect(page.get_by_role("button", name="Authorize").first).to_have_class("btn authorize unlocked")
    await page.close()


async def test_the_pages_follow_dark_mode_and_are_read_aloud(browser: Browser, running: Stack) -> None:
    dark = "background-color", "rgb(28, 32, 34)"
    context = await browser.new_context(color_scheme="dark")
    page = await context.new_page()
    await page.goto(f"{running.url}/docs")
    await expect(page.locator("#operations-contacts-list_contacts")).to_be_visible()
    await expect(page.locator("html")).to_have_css(*dark)
    await page.emulate_media(color_scheme="light")
    await expect(page.locator("html")).not_to_have_css(*dark)

    for kind in ("not-found", "unknown-path", "refused-before"):
        await page.goto(f"{running.url}/problems/{kind}")
        await expect(page.locator("main > h1")).to_be_visible()
        assert await problems_for_a_screen_reader(page) == []
    await context.close()
