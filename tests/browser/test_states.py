"""The page in Chromium: each state that it can show, and that it is read by keyboard, phone and screen reader."""

import asyncio

import pytest
from playwright.async_api import Browser, Page, expect

from devstack.testing import eventually
from tests.browser.fake_service import KEY, NOW, FakeService, Refusal, aside, event, lease, parked
from tests.browser.watched import PHONE, WIDE, Scheme, overflow, problems_for_a_screen_reader, watched

pytestmark = [pytest.mark.long, pytest.mark.asyncio(loop_scope="module")]


def trouble(service: FakeService) -> None:
    """All that can be wrong at once, with texts as long as they get."""
    service.answers["relay"] = {
        "late": True, "eventsAtRisk": True, "parkedEvents": 3, "parkedAggregates": {"contact": 1},
        "missingLeases": ["2"],
        "failures": [{"reason": "broker_away", "at": NOW.isoformat(), "detail": "Service Bus cannot be reached"}],
        "leases": [
            lease("0", lag=12, oldestWaitingSeconds=90_000, ttlUsed=0.6, owner="a" * 64),
            lease("1", lag=1, oldestWaitingSeconds=300, ttlUsed=0.0003, owner=None, state="no_owner", position=None),
        ],
    }  # fmt: skip
    service.answers["dependencies"]["items"][1] |= {
        "ok": False,
        "detail": "cannot be reached (ServiceBusConnectionError)",
    }
    service.answers["subscribers"]["items"][0]["setAside"] = {"waiting": 1, "refused": 1}
    service.answers["stuck"] = [
        parked(1, reason="x" * 300, aggregateId="b5e2e7aa-4982-4735-9422-c39a7c4af5c2"),
        parked(2, state="waiting", aggregateId="b5e2e7aa-4982-4735-9422-c39a7c4af5c2"),
        parked(3, state="alone", aggregateId=None, aggregateType=None, action=None, sequence=None),
        aside(1),
        aside(2, kind="effect", state="refused", aggregateId=None, aggregateType=None),
    ]
    states = {9: "waiting", 8: "parked", 7: "discarded", 6: "unknown", 5: "sent"}
    service.answers["events"]["items"] = [event(sequence, state=state) for sequence, state in states.items()]


def address(service: FakeService) -> str:
    return f"{service.url}/operations"


async def shown(page: Page) -> None:
    await expect(page.locator("#banner-title")).not_to_have_text("Looking …")


async def looked(page: Page, *, since: str = "") -> str:
    """When the page's last look ended; ``since``: wait for one that ends at another time.

    The page sets its next timer in the same step. A test that counts requests in its place moves the page's clock on
    while the answers are still on their way, and the timer that is set afterwards is late by as much.
    """
    line = page.locator("#looked")
    await expect(line).to_contain_text(" at ")
    if since:
        await expect(line).not_to_have_text(since)
    return await line.inner_text()


async def findings(page: Page) -> list[str]:
    await shown(page)
    return await page.locator("#findings li").all_inner_texts()


async def test_where_nothing_is_wrong_the_page_says_so(browser: Browser, service: FakeService) -> None:
    async with watched(browser, address(service)) as page:
        await expect(page.get_by_role("heading", name="All is well")).to_be_visible()
        await expect(page.get_by_text("Nothing is stuck.")).to_be_visible()
        await expect(page.locator("#tile-backlog")).to_have_text("0")
        await expect(page.locator("#tile-oldest")).to_have_text("nothing")
        await expect(page.locator("#tile-instance")).to_have_text("1,234")
        await page.get_by_text("Settings of this instance").click()
        settings = page.locator("#settings")
        await expect(settings).to_contain_text("EVENT_TTL_SECONDS864000")
        await expect(settings).to_contain_text("EVENT_SCHEMASnot set")
        assert await page.title() == "Operations"


async def test_all_that_is_wrong_is_said_the_worst_first(browser: Browser, service: FakeService) -> None:
    trouble(service)
    async with watched(browser, address(service)) as page:
        found = await findings(page)
        shown = found.pop(5)
        assert shown.startswith("Why events wait, reported at ")
        assert shown.endswith(": Service Bus cannot be reached")
        assert found == [
            "Service Bus cannot be used: cannot be reached (ServiceBusConnectionError)",
            "No lease for 1 partition (2): nothing of it is forwarded.",
            "Lease 0 is late: its oldest change waits for 1 d 1 h, 60 % of the TTL.",
            "3 events are parked.",
            "Lease 1 is late: its oldest change waits for 5 min, < 1 % of the TTL.",
            "2 messages are set aside.",
        ]
        rows = page.locator("#leases tbody tr")
        await expect(rows).to_have_count(3)
        await expect(rows.nth(0)).to_contain_text("60 %")
        await expect(rows.nth(1)).to_contain_text("nobody")
        await expect(rows.nth(2)).to_contain_text("no lease")
        stuck = page.locator("#stuck tbody tr")
        words = ("in the way", "waits behind", "of no aggregate", "is tried again", "refused")
        for number, word in enumerate(words):
            await expect(stuck.nth(number)).to_contain_text(word)
        assert await page.title() == "(7) Operations"


async def test_a_key_is_asked_for_once_and_a_wrong_one_is_reported(
    browser: Browser, service: FakeService
) -> None:
    service.asks_for_key = True
    async with watched(browser, address(service)) as page:
        field = page.get_by_label("Key", exact=True)
        await expect(field).to_be_focused()
        await expect(page.locator("#key-problem")).to_be_empty()
        await field.fill("wrong")
        await field.press("Enter")
        await expect(page.get_by_role("alert").filter(has_text="refused this key")).to_be_visible()
        await expect(field).to_have_value("")
        await field.fill("ключ")
        await field.press("Enter")
        await expect(page.get_by_text("no spaces")).to_be_visible()
        await field.fill(KEY)
        await page.get_by_role("button", name="Open").click()
        await expect(page.get_by_role("heading", name="All is well")).to_be_visible()
        assert KEY not in page.url
        assert KEY not in await page.content()
        await page.reload()
        await expect(page.get_by_role("heading", name="All is well")).to_be_visible()
        another = await page.context.new_page()
        await another.goto(address(service))
        await expect(another.get_by_label("Key", exact=True)).to_be_focused()  # another tab has no key
        await another.close()
        await page.get_by_role("button", name="Forget key").click()
        await expect(field).to_be_focused()
        await page.reload()
        await expect(field).to_be_focused()


async def test_what_was_shown_goes_with_the_key(browser: Browser, service: FakeService) -> None:
    trouble(service)
    service.asks_for_key = True
    service.answers["stuck"][0]["aggregateId"] = "the-parked-one"
    async with watched(browser, address(service)) as page:
        field = page.get_by_label("Key", exact=True)
        await field.fill(KEY)
        await field.press("Enter")
        await shown(page)
        await page.get_by_role("button", name="Events of contact the-parked-one").click()
        await expect(page.locator("#events tbody tr")).not_to_have_count(0)
        await page.get_by_label("Id", exact=True).fill("somebody-else")
        service.answers["instance"]["settings"] = {}
        secrets = ["the-parked-one", "x" * 300, "a" * 64, "ServiceBusConnectionError"]
        before = await page.content()
        assert [secret for secret in secrets if secret not in before] == []
        await page.get_by_role("button", name="Forget key").click()
        await expect(field).to_be_focused()
        await expect(field).to_have_value("")
        after = await page.content()
        assert [secret for secret in secrets if secret in after] == []
        assert await page.get_by_label("Id", exact=True).input_value() == ""
        assert "the-parked-one" not in page.url
        assert await page.title() == "Operations"


async def test_text_of_the_service_is_shown_as_text(browser: Browser, service: FakeService) -> None:
    markup = "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>"
    service.answers["stuck"] = [
        parked(1, reason=markup, aggregateId=markup, action=markup, subscriber=markup)
    ]
    service.answers["relay"]["leases"] = [lease(markup, owner=markup)]
    service.answers["instance"]["settings"] = {markup: markup}
    service.answers["dependencies"]["items"] = [
        {"name": markup, "ok": False, "milliseconds": 1, "detail": markup}
    ]
    async with watched(browser, address(service)) as page:
        assert markup in (await findings(page))[0]
        await expect(page.locator("#stuck .reason")).to_have_text(markup)
        await page.locator("#stuck").get_by_role("button", name="Events of").click()
        await expect(page.locator("#events-summary")).to_contain_text(markup)
        assert await page.locator("img").count() == 0
        assert "owned" not in await page.title()


async def test_what_cannot_be_read_is_said_and_what_was_known_stays(
    browser: Browser, service: FakeService
) -> None:
    service.answers["stuck"] = [parked(1)]
    async with watched(browser, address(service)) as page:
        await shown(page)
        service.refusals["relay"] = Refusal(503, "the store is away")
        await page.get_by_role("button", name="Look now").click()
        await expect(page.locator("#relay-problem")).to_have_text("Not known now: the store is away")
        await expect(page.locator("#leases tbody tr")).to_have_count(1)
        await expect(page.locator("#looked")).to_contain_text("Not all could be read")
        assert "Not known now: relay." in await findings(page)
        service.refusals.clear()
        await page.get_by_role("button", name="Look now").click()
        await expect(page.locator("#relay-problem")).to_be_hidden()


async def test_nothing_is_well_that_is_not_known_now(browser: Browser, service: FakeService) -> None:
    async with watched(browser, address(service)) as page:
        await expect(page.get_by_role("heading", name="All is well")).to_be_visible()
        service.refusals["subscribers"] = Refusal(503, "the store is away")
        await page.get_by_role("button", name="Look now").click()
        await expect(page.locator("#findings li")).to_have_text(["Not known now: subscribers."])
        await expect(page.get_by_role("heading", name="All is well")).to_have_count(0)


async def test_a_slow_service_is_not_asked_again_before_it_has_answered(
    browser: Browser, service: FakeService
) -> None:
    async with watched(browser, address(service), clock=True) as page:
        await looked(page)
        service.slow = asyncio.Event()
        before = service.looks("instance")
        for seconds in (3, 2, 2):  # less than a call may take
            await page.clock.run_for(1000 * seconds)
            await page.get_by_role("button", name="Look now").click()
            await eventually(lambda: service.looks("instance") == before + 1, what="one look, under way")
        service.slow.set()
        await eventually(lambda: service.looks("instance") == before + 2, what="the look that was asked for")


async def test_a_tab_that_nobody_sees_asks_nothing(browser: Browser, service: FakeService) -> None:
    async with watched(browser, address(service), clock=True) as page:
        await looked(page)
        seen = "Object.defineProperty(document, 'hidden', {configurable: true, get: () => %s});"
        changed = "document.dispatchEvent(new Event('visibilitychange'))"
        await page.evaluate(seen % "true" + changed)
        calls = len(service.calls)
        await page.clock.run_for(60_000)
        assert len(service.calls) == calls
        await page.evaluate(seen % "false" + changed)
        await looked(page)
        await eventually(lambda: len(service.calls) > calls, what="a look")


async def test_a_pause_holds_until_it_is_ended(browser: Browser, service: FakeService) -> None:
    async with watched(browser, address(service), clock=True) as page:
        await looked(page)
        await page.get_by_role("button", name="Pause").click()
        calls = len(service.calls)
        await page.clock.run_for(60_000)
        assert len(service.calls) == calls
        await page.get_by_role("button", name="Go on").click()
        await eventually(lambda: len(service.calls) > calls, what="a look")


async def test_the_list_of_events_shows_where_each_event_is(browser: Browser, service: FakeService) -> None:
    trouble(service)
    async with watched(browser, address(service)) as page:
        await shown(page)
        await page.get_by_label("Id", exact=True).fill("some-id")
        await page.get_by_role("button", name="Show").click()
        rows = page.locator("#events tbody tr")
        await expect(rows).to_have_count(5)
        texts = await rows.all_inner_texts()
        states = ("waiting", "parked", "discarded", "not known", "sent")
        assert [state in text for state, text in zip(states, texts, strict=True)] == [True] * 5
        assert page.url.endswith("#events/contact/some-id")
        service.answers["events"] |= {"before": 5}
        await page.reload()
        older = page.get_by_role("button", name="Older events")
        await expect(older).to_be_visible()
        asked = service.looks("events/contact/some-id")
        await older.click()
        await eventually(
            lambda: service.looks("events/contact/some-id") == asked + 1,
            what="the older events are asked for",
        )
        service.refusals["events/contact/gone"] = Refusal(404, "nothing is stored of contact/gone")
        await page.get_by_label("Id", exact=True).fill("gone")
        await page.get_by_role("button", name="Show").click()
        await expect(page.get_by_text("nothing is stored of contact/gone")).to_be_visible()


async def test_an_id_with_signs_is_opened_once_and_a_broken_address_not_at_all(
    browser: Browser, service: FakeService
) -> None:
    service.answers["events"]["items"] = [event(1)]
    async with watched(browser, address(service)) as page:
        await shown(page)
        await page.get_by_label("Id", exact=True).fill("a b")
        await page.get_by_role("button", name="Show").click()
        await expect(page.locator("#events tbody tr")).to_have_count(1)
        before = service.looks("instance")
        await page.get_by_role("button", name="Look now").click()
        await eventually(lambda: service.looks("instance") > before + 1, what="another look")
        assert service.looks("events/contact/a b") == 1
        await page.evaluate("location.replace('#events/contact/%')")
        await page.get_by_role("button", name="Look now").click()
        await looked(page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
async def test_axe_finds_nothing_and_nothing_is_wider_than_the_window(
    browser: Browser, service: FakeService, scheme: Scheme, size: tuple[int, int]
) -> None:
    trouble(service)
    async with watched(browser, f"{address(service)}#events/contact/c", size=size, scheme=scheme) as page:
        await expect(page.locator("#events tbody tr")).to_have_count(5)
        await page.get_by_text("Settings of this instance").click()
        await page.locator("#stuck tbody input").nth(0).check()
        assert await problems_for_a_screen_reader(page) == []
        assert await overflow(page) <= 0
        await page.locator("#stuck").get_by_role("button", name="Discard event 1").click()
        assert await problems_for_a_screen_reader(page) == []
        await page.get_by_label("Reason").fill("because")
        await page.get_by_role("button", name="Discard 1", exact=True).click()
        await expect(page.locator("#work-list")).to_contain_text("1 done")
        assert await problems_for_a_screen_reader(page) == []
        assert await overflow(page) <= 0
        service.asks_for_key = True
        await page.get_by_role("button", name="Look now").click()
        await expect(page.locator("#sign-in")).to_be_visible()
        assert await problems_for_a_screen_reader(page) == []
        ground = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground == ("rgb(244, 245, 247)" if scheme == "light" else "rgb(15, 19, 24)")
