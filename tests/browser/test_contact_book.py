"""The contact book over the real service, at an origin of its own: what a person does there is done in the store."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Dialog, Page, Route, expect

from devstack.testing import Stack, eventually
from tests.browser.watched import PHONE, WIDE, Scheme, overflow, problems_for_a_screen_reader, watched
from tests.support.paths import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(120), pytest.mark.asyncio(loop_scope="module")]

KEY = "the-function-key"
WEB = ROOT / "examples" / "web"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    settings = {"PYTHONPATH": str(ROOT), "DEVSTACK_MASTER_KEY": "m", "DEVSTACK_FUNCTION_KEY": KEY}
    with Stack(tmp_path_factory.mktemp("stack"), settings) as started:
        started.make(ROOT)
        started.run(ROOT, "--keys", f"--web={WEB}", "--web-port=0")
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def api(stack: Stack) -> AsyncIterator[aiohttp.ClientSession]:
    """Somebody else, who calls the same API."""
    async with aiohttp.ClientSession(
        f"{stack.functions.addresses[0]}api/", headers={"x-functions-key": KEY}
    ) as session:
        yield session


@pytest_asyncio.fixture(loop_scope="module")
async def page(browser: Browser, stack: Stack) -> AsyncIterator[Page]:
    app, web = stack.functions.addresses
    async with watched(browser, web, calls=app) as opened:
        await sign_in(opened)
        yield opened


async def sign_in(page: Page, key: str = KEY) -> None:
    await page.get_by_label("Key", exact=True).fill(key)
    await page.get_by_role("button", name="Open").click()


async def wrote(page: Page, **texts: str) -> None:
    for label, text in texts.items():
        await page.get_by_label(label.replace("_", " "), exact=True).fill(text)


async def save(page: Page) -> None:
    await page.get_by_role("button", name="Save").click()


async def stored(page: Page) -> None:
    await expect(page.locator("#steps li").first).to_contain_text("stored with event")


async def arrived(page: Page) -> None:
    """The three stations of a change are done: outbox, relay and subscriber."""
    await expect(page.locator("#steps li").last).to_contain_text(" the directory, ", timeout=30_000)
    await expect(page.locator("#steps li.done")).to_have_count(3)


async def made(api: aiohttp.ClientSession, last_name: str, **more: Any) -> str:
    """A contact that somebody else has made, and that the directory has; its id."""
    details = {"name": {"firstName": "Ann", "lastName": last_name}, "email": f"{last_name}@contoso.com"}
    async with api.post("contacts", json=details | more) as answer:
        assert answer.status == 201, await answer.text()
        contact_id = str((await answer.json())["id"])

    async def is_listed() -> bool:
        async with api.get("directory", params={"name": last_name}) as answer:
            return bool((await answer.json())["items"])

    await eventually(is_listed, what="the contact in the directory")
    return contact_id


async def read(api: aiohttp.ClientSession, contact_id: str) -> dict[str, Any]:
    async with api.get(f"contacts/{contact_id}") as answer:
        assert answer.status == 200
        found: dict[str, Any] = await answer.json()
        return found


async def open_by_search(page: Page, last_name: str) -> None:
    await page.get_by_label("Name begins with").fill(last_name)
    await page.get_by_role("button", name="Search").click()
    await page.locator("#list button").filter(has_text=last_name).click()
    await expect(page.locator("#editor-title")).to_have_text(f"Ann {last_name}")


def new_name() -> str:
    return f"L{uuid.uuid4().hex[:10]}"


async def test_a_wrong_key_is_reported_and_the_right_one_opens_the_book(
    browser: Browser, stack: Stack
) -> None:
    app, web = stack.functions.addresses
    async with watched(browser, web, calls=app) as page:
        await sign_in(page, "wrong")
        await expect(page.locator("#key-problem")).to_have_text("The service does not take this key.")
        await sign_in(page)
        await expect(page.get_by_role("heading", name="Directory")).to_be_visible()
        await page.get_by_role("button", name="Forget key").click()
        await expect(page.get_by_role("heading", name="Function key")).to_be_visible()


async def test_a_new_contact_is_refused_at_its_fields_then_stored_and_listed(
    page: Page, api: aiohttp.ClientSession
) -> None:
    name = new_name()
    await page.get_by_role("button", name="New contact").click()
    await wrote(page, Last_name=name, City="Oslo")
    await page.get_by_label("E-mail", exact=True).fill("nobody")
    await save(page)
    first = page.get_by_label("First name", exact=True)
    await expect(first).to_be_focused()
    await expect(first).to_have_attribute("aria-invalid", "true")
    await expect(first).to_have_accessible_description("must not be blank")
    await expect(page.get_by_label("E-mail", exact=True)).to_have_attribute("aria-invalid", "true")
    await expect(page.get_by_label("Company", exact=True)).to_have_attribute("aria-invalid", "true")
    await wrote(page, First_name="Ann", Company="Contoso")
    await page.get_by_label("E-mail", exact=True).fill(f"{name}@contoso.com")
    await save(page)
    await stored(page)
    await arrived(page)
    await expect(page.locator("#list button").filter(has_text=name)).to_contain_text("Contoso · Oslo")
    await expect(page.locator("#list button[aria-current=true]")).to_contain_text(name)


async def test_two_writers_are_merged_and_a_person_decides_field_conflicts(
    page: Page, api: aiohttp.ClientSession
) -> None:
    name = new_name()
    contact = await made(api, name, description="first\r\nsecond")
    await open_by_search(page, name)
    await wrote(page, Description="mine")
    await page.get_by_label("E-mail", exact=True).fill("mine@contoso.com")
    theirs = {"email": "theirs@contoso.com", "company": {"companyName": "Fabrikam"}}
    async with api.patch(f"contacts/{contact}", json=theirs) as answer:
        assert answer.status == 200
    await save(page)
    await expect(page.get_by_role("heading", name="Somebody else")).to_be_focused()
    await expect(page.locator("#taken")).to_contain_text("Taken over from them: Company.")
    assert (await read(api, contact))["email"] == "theirs@contoso.com", "nothing is sent before Save"
    assert await problems_for_a_screen_reader(page) == []
    await page.get_by_label("Theirs: theirs@contoso.com").check()
    await save(page)
    await arrived(page)
    await expect(page.locator("#conflict")).to_be_hidden()
    found = await read(api, contact)
    assert (found["email"], found["description"], found["company"]["companyName"]) == (
        "theirs@contoso.com",
        "mine",
        "Fabrikam",
    )
    assert found["sequence"] == 4, "created, e-mail and company by them, the description by me"


async def test_closing_asks_before_losing_input_and_focuses_the_row_again(
    page: Page, api: aiohttp.ClientSession
) -> None:
    name = new_name()
    await made(api, name)
    await open_by_search(page, name)
    await wrote(page, Description="typed")
    asked: list[str] = []
    answers = [False, True]

    async def answer(dialog: Dialog) -> None:
        asked.append(dialog.message)
        await (dialog.accept() if answers.pop(0) else dialog.dismiss())

    page.on("dialog", answer)
    close = page.get_by_role("button", name="Close")
    await close.click()
    await expect(page.get_by_label("Description")).to_have_value("typed")
    await close.click()
    await expect(page.locator("#editor")).to_be_hidden()
    assert asked == ["Leave what you have typed?"] * 2
    await expect(page.locator("#list button").filter(has_text=name)).to_be_focused()


async def test_a_contact_has_an_address_for_back_reload_and_links(
    browser: Browser, stack: Stack, page: Page, api: aiohttp.ClientSession
) -> None:
    one, two = new_name(), new_name()
    ids = await made(api, one), await made(api, two)
    app, web = stack.functions.addresses
    title = page.locator("#editor-title")
    await open_by_search(page, one)
    await expect(page).to_have_url(f"{web}?contact={ids[0]}")
    await open_by_search(page, two)
    await page.go_back()
    await expect(title).to_have_text(f"Ann {one}")
    await page.reload()
    await expect(title).to_have_text(f"Ann {one}")
    await page.go_back()
    await expect(page.locator("#editor")).to_be_hidden()
    await expect(page).to_have_url(web)
    await page.go_forward()
    await expect(title).to_have_text(f"Ann {one}")

    await wrote(page, Description="not saved")
    page.once("dialog", lambda dialog: asyncio.ensure_future(dialog.dismiss()))
    await page.go_back()
    await expect(page).to_have_url(f"{web}?contact={ids[0]}")
    await expect(page.get_by_label("Description")).to_have_value("not saved")
    page.once("dialog", lambda dialog: asyncio.ensure_future(dialog.accept()))
    await page.get_by_role("button", name="Close").click()
    await expect(page).to_have_url(web)

    async with watched(browser, web, calls=app) as linked:
        await linked.goto(f"{web}?contact={ids[1]}")
        await sign_in(linked, "wrong")
        await expect(linked.locator("#key-problem")).to_have_text("The service does not take this key.")
        await sign_in(linked)
        await expect(linked.locator("#editor-title")).to_have_text(f"Ann {two}")
        await linked.goto(f"{web}?contact={uuid.uuid4()}")
        await expect(linked.locator("#list-problem")).to_contain_text("This contact was deleted")


async def test_on_a_phone_an_open_contact_replaces_the_list_until_closed(
    browser: Browser, stack: Stack, api: aiohttp.ClientSession
) -> None:
    app, web = stack.functions.addresses
    name = new_name()
    await made(api, name)
    async with watched(browser, web, size=PHONE, calls=app) as page:
        await sign_in(page)
        await open_by_search(page, name)
        await expect(page.locator("#list")).to_be_hidden()
        await wrote(page, Description="x")
        await save(page)
        await arrived(page)
        await expect(page.locator("#steps li").last).to_be_in_viewport()
        await page.get_by_role("button", name="Close").click()
        await expect(page.locator("#list button").filter(has_text=name)).to_be_focused()
        await expect(page.locator("#journey")).to_be_in_viewport()


async def test_the_book_is_sorted_by_what_was_changed_last(page: Page, api: aiohttp.ClientSession) -> None:
    prefix = new_name()
    for letter in "ab":
        await made(api, f"{prefix}{letter}")
    await page.get_by_label("Name begins with").fill(prefix)
    for order, first in (("Newest first", "b"), ("Name", "a"), ("Changed last", "b")):
        await page.get_by_label("Sort by").select_option(order)
        await expect(page.locator("#list button strong")).to_contain_text(
            [f"{prefix}{first}", f"{prefix}{'a' if first == 'b' else 'b'}"]
        )


async def test_a_lost_answer_is_shown_and_the_same_save_makes_no_second_contact(
    page: Page, api: aiohttp.ClientSession
) -> None:
    name = new_name()
    lost: list[str] = []

    async def lose(route: Route) -> None:
        if route.request.method != "POST" or lost:
            await route.continue_()
            return
        answer = await route.fetch()
        lost.append((await answer.json())["id"])
        await route.abort()

    await page.route("**/api/contacts", lose)
    await page.get_by_role("button", name="New contact").click()
    await wrote(page, First_name="Ann", Last_name=name)
    await page.get_by_label("E-mail", exact=True).fill(f"{name}@contoso.com")
    await save(page)
    await expect(page.locator("#editor-problem")).to_contain_text("it is made once")
    await save(page)
    await arrived(page)
    await page.unroute("**/api/contacts", lose)
    async with api.get("directory", params={"name": name}) as answer:
        assert [each["id"] for each in (await answer.json())["items"]] == lost


async def test_what_is_typed_while_a_save_is_under_way_stays(page: Page, api: aiohttp.ClientSession) -> None:
    name = new_name()
    contact = await made(api, name)
    await open_by_search(page, name)
    may_go = asyncio.Event()

    async def hold(route: Route) -> None:
        if route.request.method == "PATCH":
            await may_go.wait()
        await route.continue_()

    await page.route("**/api/contacts/*", hold)
    await wrote(page, Description="first")
    await save(page)
    await wrote(page, Description="second")
    may_go.set()
    await arrived(page)
    await expect(page.get_by_label("Description")).to_have_value("second")
    assert (await read(api, contact))["description"] == "first"
    await save(page)
    await expect(page.locator("#steps li").first).to_contain_text("event 3")
    await expect(page.locator("#steps li").nth(1)).to_contain_text("Relay")
    assert (await read(api, contact))["description"] == "second"
    await page.unroute("**/api/contacts/*", hold)


async def test_a_contact_is_deleted_over_the_version_that_was_seen(
    page: Page, api: aiohttp.ClientSession
) -> None:
    name = new_name()
    contact = await made(api, name)
    await open_by_search(page, name)
    async with api.patch(f"contacts/{contact}", json={"description": "new"}) as answer:
        assert answer.status == 200
    delete = page.locator("#editor").get_by_role("button", name="Delete")
    await delete.click()
    await page.get_by_role("dialog").get_by_role("button", name="Keep").click()
    await expect(page.get_by_role("dialog")).to_be_hidden()
    await delete.click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(page.locator("#taken")).to_contain_text("Taken over from them: Description.")
    assert (await read(api, contact))["description"] == "new"
    await delete.click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await arrived(page)
    await expect(page.locator("#steps li").last).to_contain_text("out of the directory")
    async with api.get(f"contacts/{contact}") as answer:
        assert answer.status == 404
    await expect(page.locator("#list button").filter(has_text=name)).to_have_count(0)


async def test_the_keyboard_is_enough(page: Page, api: aiohttp.ClientSession) -> None:
    name = new_name()
    await page.get_by_role("button", name="New contact").focus()
    await page.keyboard.press("Enter")
    for text in ("Ann", name, f"{name}@contoso.com"):
        await page.keyboard.type(text)
        await page.keyboard.press("Tab")
    await page.keyboard.press("Shift+Tab")
    await page.keyboard.press("Enter")
    await arrived(page)
    await expect(page.get_by_label("E-mail", exact=True)).to_be_focused()
    async with api.get("directory", params={"name": name}) as answer:
        assert len((await answer.json())["items"]) == 1


@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "light"), (WIDE, "dark"), (PHONE, "light")])
async def test_everybody_can_use_it(
    browser: Browser, stack: Stack, api: aiohttp.ClientSession, size: tuple[int, int], scheme: Scheme
) -> None:
    app, web = stack.functions.addresses
    name = new_name()
    await made(api, name, company={"companyName": "A company with a long name " * 5})
    async with watched(browser, web, size=size, scheme=scheme, calls=app) as page:
        assert await problems_for_a_screen_reader(page) == []
        await sign_in(page)
        await open_by_search(page, name)
        await wrote(page, Description="x")
        await save(page)
        await arrived(page)
        assert await overflow(page) <= 0
        await page.locator("#editor").get_by_role("button", name="Delete").click()
        assert await problems_for_a_screen_reader(page) == []
