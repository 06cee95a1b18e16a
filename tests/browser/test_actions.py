"""Every button of the page in Chromium: with consent, one call after another, each answer shown."""

import pytest
from playwright.async_api import Browser, Page, expect

from devstack.testing import eventually
from tests.browser.fake_service import FakeService, Refusal, aside, parked
from tests.browser.watched import watched

pytestmark = [pytest.mark.long, pytest.mark.asyncio(loop_scope="module")]


def address(service: FakeService) -> str:
    return f"{service.url}/operations"


async def press(page: Page, *names: str) -> None:
    for name in names:
        await page.get_by_role("button", name=name, exact=True).click()


async def done(page: Page, text: str) -> None:
    """The newest work says so."""
    await expect(page.locator("#work-list > li").first).to_contain_text(text)


async def test_a_discard_needs_a_reason_and_shows_its_answer(browser: Browser, service: FakeService) -> None:
    service.answers["stuck"] = [parked(1), parked(2, state="waiting", aggregateId="contact-1")]
    async with watched(browser, address(service)) as page:
        rows = page.locator("#stuck tbody tr")
        await expect(rows).to_have_count(2)
        await expect(
            rows.nth(1).get_by_role("button", name="Discard")
        ).to_be_hidden()  # it waits behind the first
        opener = rows.nth(0).get_by_role("button", name="Discard")
        await opener.click()
        await press(page, "Cancel")
        await expect(opener).to_be_focused()
        await opener.click()
        await press(page, "Discard 1")
        await expect(page.get_by_text("Give a reason.")).to_be_visible()
        await page.get_by_label("Reason").fill("   ")
        await press(page, "Discard 1")
        await expect(page.get_by_text("Give a reason.")).to_be_visible()
        assert service.changes() == []
        await page.get_by_label("Reason").fill(" made by hand ")
        await press(page, "Discard 1")
        await done(page, "event 1 of contact contact-1: discarded")
        assert service.changes() == [f"stuck/{1:032x}/discard"]
        assert service.bodies == [{"reason": "made by hand"}]
        await expect(rows).to_have_count(1)
        await press(page, "Close")
        await expect(page.locator("#work")).to_be_hidden()


async def test_the_events_of_one_aggregate_are_retried_by_one_call(
    browser: Browser, service: FakeService
) -> None:
    service.answers["stuck"] = [parked(1), parked(2, state="waiting", aggregateId="contact-1"), parked(3)]
    async with watched(browser, address(service)) as page:
        await page.get_by_role("checkbox", name="Select all").check()
        await press(page, "Retry selected …", "Retry 2")
        await done(page, "contact contact-1: 2 sent or applied")
        await done(page, "contact contact-3: 2 sent or applied")
        assert service.changes() == [f"stuck/{1:032x}/retry", f"stuck/{3:032x}/retry"]
        await expect(page.get_by_text("Nothing is stuck.")).to_be_visible()


async def test_a_retry_that_leaves_events_says_that_they_follow(
    browser: Browser, service: FakeService
) -> None:
    service.answers["stuck"], service.remaining = [parked(1)], True
    async with watched(browser, address(service)) as page:
        await page.get_by_role("button", name="Retry event 1").click()
        await press(page, "Retry 1")
        await done(page, "2 sent or applied; the rest follows by itself")


async def test_many_go_one_after_another_and_each_answer_is_shown(
    browser: Browser, service: FakeService
) -> None:
    service.answers["stuck"] = [aside(number) for number in range(1, 6)]
    second, third = (f"stuck/{1_000_000 + number:032x}/retry" for number in (2, 3))
    service.refusals[second] = Refusal(409, "it still cannot be applied")
    service.refusals[third] = Refusal(503, "the store is away", retry_after=1, times=1)
    async with watched(browser, address(service)) as page:
        await expect(page.locator("#stuck tbody tr").first).to_contain_text("message at board")
        await page.get_by_role("checkbox", name="Select all").check()
        await press(page, "Retry selected …", "Retry 5")
        await done(page, "4 done, 1 refused")
        await done(page, "it still cannot be applied")
        made = [int(each.split("/")[1], 16) - 1_000_000 for each in service.changes()]
        assert made == [1, 2, 3, 3, 4, 5]
        assert service.most_at_once == 1
        await expect(page.locator("#stuck-count")).to_have_text(
            "1 selected"
        )  # what was refused stays selected
        await press(page, "Discard selected …")
        await page.get_by_label("Reason").fill("not ours")
        await press(page, "Discard 1")
        await done(page, "1 done")
        await expect(page.get_by_text("Nothing is stuck.")).to_be_visible()


async def test_an_effect_is_not_run_again_by_the_page_itself(browser: Browser, service: FakeService) -> None:
    """The service answers 503 also when the effect was run and that could not be recorded: do not retry by itself."""
    service.answers["stuck"] = [aside(1, kind="effect", state="refused")]
    path = f"stuck/{1_000_001:032x}/retry"
    service.refusals[path] = Refusal(503, "the effect was run", retry_after=1, times=1)
    async with watched(browser, address(service)) as page:
        await page.get_by_role("button", name="Retry effect 1").click()
        await press(page, "Retry 1")
        await done(page, "0 done, 1 refused")
        await expect(page.locator("#work-list")).to_contain_text("the effect was run")
        assert service.changes() == [path]


async def test_an_answer_that_is_lost_is_shown(browser: Browser, service: FakeService) -> None:
    service.answers["stuck"] = [parked(1)]
    async with watched(browser, address(service)) as page:
        await page.get_by_role("button", name="Retry event 1").click()
        await page.route("**/retry", lambda route: route.abort())
        await press(page, "Retry 1")
        await done(page, "the service cannot be reached")
        await expect(page.locator("#work-list .nowrap")).to_have_text("0 done, 1 without an answer")


async def test_ten_thousand_are_paged_selected_and_stopped(browser: Browser, service: FakeService) -> None:
    service.answers["stuck"] = [parked(number) for number in range(1, 10_001)]
    async with watched(browser, address(service)) as page:
        box = page.get_by_role("region", name="Stuck")
        rows = box.locator("tbody tr")
        await expect(rows).to_have_count(50)
        await box.get_by_role("button", name="Next page").click()
        await expect(rows.first).to_contain_text("contact-51")
        await box.get_by_role("checkbox", name="Select event 51").check()
        await box.get_by_role("button", name="Previous page").click()
        await expect(rows.first).to_contain_text("contact-1")
        await expect(box).to_contain_text("1 selected")
        await box.get_by_role("button", name="Select all pages").click()
        await expect(box).to_contain_text("10,000 selected", timeout=20_000)
        await expect(rows).to_have_count(50)
        await box.get_by_role("button", name="Discard selected").click()
        await expect(page.get_by_role("dialog")).to_contain_text("and 9,950 more")
        await page.get_by_label("Reason").fill("a test")
        await press(page, "Discard 10,000")
        await eventually(lambda: len(service.changes()) >= 20)
        wait = "new Promise((done) => { const at = performance.now(); setTimeout(() => done(performance.now() - at)) })"
        took = [await page.evaluate(wait) for _ in range(3)]  # a busy machine may hold up one of them
        assert min(took) < 500, "the page answers while it works"
        await press(page, "Stop")
        await done(page, "not begun")
        made = len(service.changes())
        look = service.looks("instance")
        await page.get_by_role("button", name="Look now").click()
        await eventually(lambda: service.looks("instance") > look, what="the page goes on")
        assert len(service.changes()) == made
        assert service.most_at_once == 1
        await box.get_by_role("button", name="Select none").click()
        await expect(box.locator(".count")).to_be_empty()


async def test_all_of_it_can_be_done_by_keyboard(browser: Browser, service: FakeService) -> None:
    service.answers["stuck"] = [parked(1), parked(2)]
    async with watched(browser, address(service)) as page:
        await expect(page.locator("#stuck tbody tr")).to_have_count(2)
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
        await page.keyboard.press("Enter")
        assert [await tab(page) for _ in range(7)] == [
            "Select all on this page",  # the buttons beside it can do nothing yet, and are left out
            "Select event 1 of contact contact-1",
            "Events of contact contact-1",
            "Retry event 1 of contact contact-1",
            "Discard event 1 of contact contact-1",
            "Select event 2 of contact contact-2",
            "Events of contact contact-2",
        ]
        await page.get_by_role("checkbox", name="Select event 1").focus()
        await page.keyboard.press("Space")
        await page.get_by_role("button", name="Discard event 1").focus()
        await page.keyboard.press("Enter")
        await expect(page.get_by_label("Reason")).to_be_focused()
        await page.keyboard.type("by keyboard")
        assert [await tab(page) for _ in range(2)] == ["Cancel", "Discard 1"]
        await page.keyboard.press("Enter")
        await done(page, "1 done")
        await expect(page.locator("#work-title")).to_be_focused()
        assert service.bodies == [{"reason": "by keyboard"}]


async def tab(page: Page) -> str:
    """Press Tab; what has the focus then, which must be seen."""
    await page.keyboard.press("Tab")
    name: str = await page.evaluate(
        "document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent.trim()"
    )
    seen = await page.evaluate(
        "(({outlineStyle, outlineWidth}) => outlineStyle !== 'none' && parseFloat(outlineWidth) >= 1)"
        "(getComputedStyle(document.activeElement))"
    )
    assert seen, f"nobody sees that {name} has the focus"
    return name


async def test_the_focus_stays_where_it_is_while_the_page_looks_again(
    browser: Browser, service: FakeService
) -> None:
    service.answers["stuck"] = [parked(1), parked(2)]
    async with watched(browser, address(service)) as page:
        button = page.locator("#stuck").get_by_role("button", name="Discard event 2")
        await button.focus()
        service.answers["stuck"] = [parked(2, attempts=7), parked(3)]
        looks = service.looks("stuck")
        await page.evaluate("document.getElementById('look-now').click()")
        await eventually(lambda: service.looks("stuck") > looks)
        await expect(page.locator("#stuck tbody tr").first).to_contain_text("7")
        await expect(button).to_be_focused()
