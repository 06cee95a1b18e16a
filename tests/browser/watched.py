"""A page in Chromium whose every complaint fails the test: an error of the script, the policy, or a foreign address."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import axe_playwright_python  # type: ignore[import-untyped]  # it has no types; its script alone is used
from playwright.async_api import Browser, ConsoleMessage, Page, Request

BEGIN_SECONDS = 1_772_366_400
WIDE, PHONE = (1280, 900), (320, 640)
_REFUSED = "Failed to load resource: the server responded with a status of"
_AWAY = "Failed to load resource: net::ERR_"
_AXE = (Path(axe_playwright_python.__file__ or "").parent / "axe.min.js").read_text("utf-8")

Scheme = Literal["light", "dark"]


@asynccontextmanager
async def watched(
    browser: Browser,
    url: str,
    *,
    size: tuple[int, int] = WIDE,
    scheme: Scheme = "light",
    clock: bool = False,
    calls: str = "",
) -> AsyncIterator[Page]:
    """The page in a tab of its own. ``clock``: time stands still until the test lets it go on.

    ``calls``: the address of the API, where it is not beside the page.
    """
    complaints: list[str] = []

    def heard(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not message.text.startswith((_REFUSED, _AWAY)):
            complaints.append(message.text)

    def asked(request: Request) -> None:
        if not request.url.startswith((url.partition("/operations")[0], "data:", *filter(None, [calls]))):
            complaints.append(f"asked {request.url}")

    context = await browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, reduced_motion="reduce"
    )
    try:
        page = await context.new_page()
        page.set_default_timeout(15_000)
        page.on("console", heard)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", asked)
        if clock:
            await page.clock.install(time=BEGIN_SECONDS)
            # The clock goes on until it is stopped, on a slow machine for seconds, and cannot be set back.
            await page.clock.pause_at(BEGIN_SECONDS + 60)
        await page.goto(url)
        yield page
        assert not complaints, complaints
    finally:
        await context.close()


async def problems_for_a_screen_reader(page: Page) -> Sequence[str]:
    """What axe finds: the rule and the elements; contrast, names, roles and landmarks among much else."""
    await page.evaluate(_AXE)
    found: dict[str, Any] = await page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']}: {json.dumps([node['target'] for node in each['nodes']])}"
        for each in found["violations"]
    ]


async def overflow(page: Page) -> int:
    """By how many pixels the page is wider than the window."""
    wider: int = await page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    return wider
