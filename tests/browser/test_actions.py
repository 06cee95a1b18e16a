"""Every button of the page in Chromium: asked twice, one call after another, each answer shown."""

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


async def test_a_discard_is_asked_twice_needs_a_reason_and_shows_its_answer(
    browser: Browser, service: FakeService
) -> None:
    service.answers["parked"] = [parked(1), parked(2, state="waiting", contactId="contact-1")]
    async with watched(browser, address(service)) as page:
        rows = page.locator("#parked-list").locator("tbody tr")
        await expect(rows).to_have_count(2)
        await expect(
            rows.nth(1).get_by_role("button", name="Discard")
        ).to_be_hidden()  # it waits behind the first
        opener = rows.nth(0).get_by_role("button", name="Discard")
        await opener.click()
        await press(page, "Cancel")
        await expect(opener).to_be_focused()
        await opener.click()
        await press(page, "Continue")
        await expect(page.get_by_text("Give a reason.")).to_be_visible()
        await page.get_by_label("Reason").fill("   ")
        await press(page, "Continue")
        await expect(page.get_by_text("Give a reason.")).to_be_visible()
        await page.get_by_label("Reason").fill(" made by hand ")
        await press(page, "Continue")
        await expect(page.get_by_role("heading", name="Are you sure?")).to_be_focused()
        await expect(page.get_by_role("dialog")).to_contain_text("Reason: made by hand")
        assert service.changes() == []
        await press(page, "Discard 1 event")
        await done(page, "event 1 of contact contact-1: discarded")
        assert service.changes() == [f"parked/{1:032x}/discard"]
        assert service.bodies == [{"reason": "made by hand"}]
        await expect(rows).to_have_count(1)
        await press(page, "Close")
        await expect(page.locator("#work")).to_be_hidden()


async def test_a_replay_goes_on_until_nothing_remains(browser: Browser, service: FakeService) -> None:
    service.answers["parked"] = [parked(1)]
    service.remaining = 2
    async with watched(browser, address(service)) as page:
        await page.locator("#parked-list").get_by_role("button", name="Replay event 1").click()
        await press(page, "Continue", "Replay 1 aggregate")
        await done(page, "contact contact-1: 6 events sent")
        assert service.changes() == ["parked/contacts/contact-1/replay"] * 3


async def test_many_go_one_after_another_and_each_answer_is_shown(
    browser: Browser, service: FakeService
) -> None:
    service.answers["set-aside"] = [aside(number) for number in range(1, 6)]
    service.refusals[f"set-aside/{2:032x}/apply"] = Refusal(409, "it still cannot be applied")
    service.refusals[f"set-aside/{3:032x}/apply"] = Refusal(503, "the store is away", retry_after=1, times=1)
    async with watched(browser, address(service)) as page:
        box = page.locator("#list-set-aside")
        await box.get_by_role("checkbox", name="Select all").check()
        await box.get_by_role("button", name="Apply selected").click()
        await press(page, "Continue", "Apply 5 messages")
        await done(page, "4 done, 1 refused")
        await done(page, "it still cannot be applied")
        assert [int(each.split("/")[1], 16) for each in service.changes()] == [1, 2, 3, 3, 4, 5]
        assert service.most_at_once == 1
        await expect(box).to_contain_text("1 selected")  # what was refused stays selected
        await box.get_by_role("button", name="Discard selected").click()
        await page.get_by_label("Reason").fill("not ours")
        await press(page, "Continue", "Discard 1 message")
        await done(page, "1 done")
        await expect(page.get_by_text("Nothing is set aside.")).to_be_visible()


async def test_messages_of_a_second_subscriber_are_given_up(browser: Browser, service: FakeService) -> None:
    service.answers["instance"]["lists"] = ["board/set-aside", "of-another-version"]
    service.answers["board/subscriber"] = service.answers.pop("subscriber")
    service.answers.pop("set-aside")
    service.answers["board/set-aside"] = [aside(1, state="refused"), aside(2, state="refused")]
    async with watched(browser, address(service)) as page:
        messages = page.locator("#list-board-set-aside")
        rows = messages.locator("tbody tr")
        await expect(rows).to_have_count(2)
        await rows.nth(1).get_by_role("button", name="Discard").click()
        await press(page, "Continue")
        await expect(page.get_by_text("Give a reason.")).to_be_visible()
        await page.get_by_label("Reason").fill("done by hand")
        await press(page, "Continue", "Discard 1 message")
        await done(page, "discarded")
        assert service.bodies == [{"reason": "done by hand"}]
        await expect(rows).to_have_count(1)  # the page looked again: the last row is another one now
        await expect(page.get_by_role("heading", name="Messages set aside · board")).to_be_visible()
        await page.get_by_role("button", name="Collect dead letters").click()
        await press(page, "Continue", "Collect")
        await done(page, "3 messages collected")
        assert [each.split("/", 1)[0] + "/" + each.rsplit("/", 1)[1] for each in service.changes()] == [
            "board/discard", "board/collect"
        ]  # fmt: skip


async def test_an_effect_is_not_run_again_by_the_page_itself(browser: Browser, service: FakeService) -> None:
    """The service answers 503 also when the effect was run and that could not be recorded: do not apply it again."""
    service.answers["set-aside"] = [aside(1, state="refused")]
    service.refusals[f"set-aside/{1:032x}/apply"] = Refusal(503, "the effect was run", retry_after=1, times=1)
    async with watched(browser, address(service)) as page:
        await page.locator("#list-set-aside").get_by_role("button", name="Apply event 1").click()
        await press(page, "Continue", "Apply 1 message")
        await done(page, "0 done, 1 refused")
        await expect(page.locator("#work-list")).to_contain_text("the effect was run")
        assert service.changes() == [f"set-aside/{1:032x}/apply"]


async def test_dead_letters_are_collected(browser: Browser, service: FakeService) -> None:
    async with watched(browser, address(service)) as page:
        await page.get_by_role("button", name="Collect dead letters").click()
        await press(page, "Continue", "Collect")
        await done(page, "3 messages collected")
        assert service.changes() == ["dead-letters/collect"]


async def test_an_answer_that_is_lost_is_told(browser: Browser, service: FakeService) -> None:
    service.answers["parked"] = [parked(1)]
    async with watched(browser, address(service)) as page:
        await page.locator("#parked-list").get_by_role("button", name="Replay event 1").click()
        await press(page, "Continue")
        await page.route("**/replay", lambda route: route.abort())
        await press(page, "Replay 1 aggregate")
        await done(page, "the service cannot be reached")
        await expect(page.locator("#work-list .nowrap")).to_have_text("0 done, 1 without an answer")


async def test_ten_thousand_are_paged_selected_and_stopped(browser: Browser, service: FakeService) -> None:
    service.answers["parked"] = [parked(number) for number in range(1, 10_001)]
    async with watched(browser, address(service)) as page:
        box = page.locator("#parked-list")
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
        await press(page, "Continue", "Discard 10,000 events")
        await eventually(lambda: len(service.changes()) >= 20)
        wait = "new Promise((told) => { const at = performance.now(); setTimeout(() => told(performance.now() - at)) })"
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
    service.answers["parked"] = [parked(1), parked(2)]
    async with watched(browser, address(service)) as page:
        await expect(page.locator("#parked-list").locator("tbody tr")).to_have_count(2)
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
        await page.keyboard.press("Enter")
        assert (
            [await tab(page) for _ in range(7)]
            == [
                "Select all parked events on this page",  # the buttons beside it can do nothing yet, and are left out
                "Select event 1 of contact contact-1",
                "Events of contact contact-1",
                "Replay event 1 of contact contact-1",
                "Discard event 1 of contact contact-1",
                "Select event 2 of contact contact-2",
                "Events of contact contact-2",
            ]
        )
        await page.get_by_role("checkbox", name="Select event 1").focus()
        await page.keyboard.press("Space")
        await page.get_by_role("button", name="Discard event 1").focus()
        await page.keyboard.press("Enter")
        await expect(page.get_by_label("Reason")).to_be_focused()
        await page.keyboard.type("by keyboard")
        assert [await tab(page) for _ in range(2)] == ["Cancel", "Continue"]
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="Are you sure?")).to_be_focused()
        assert [await tab(page) for _ in range(2)] == ["Cancel", "Discard 1 event"]
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
    service.answers["parked"] = [parked(1), parked(2)]
    async with watched(browser, address(service)) as page:
        button = page.locator("#parked-list").get_by_role("button", name="Discard event 2")
        await button.focus()
        service.answers["parked"] = [parked(2, attempts=7), parked(3)]
        looks = service.looks("parked")
        await page.evaluate("document.getElementById('look-now').click()")
        await eventually(lambda: service.looks("parked") > looks)
        await expect(page.locator("#parked-list").locator("tbody tr").first).to_contain_text("7")
        await expect(button).to_be_focused()
