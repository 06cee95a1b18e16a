"""Runs this machine's Chromium by Playwright: nothing is downloaded, and a missing one is reported in one line."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import Browser, async_playwright

SETTING = "CHROMIUM"
NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")


class NoChromium(Exception):
    """There is no Chromium; the message describes how to get one."""


def executable() -> str:
    """Returns the Chromium that the setting names, else the first on the path. Raises NoChromium."""
    given = os.environ.get(SETTING)
    found = given or next(filter(None, map(shutil.which, NAMES)), None)
    if not found or not Path(found).exists():
        raise NoChromium(
            f"there is no Chromium ({given or ', '.join(NAMES)}): install it (Debian, Ubuntu: sudo apt-get install "
            f"chromium; macOS: brew install --cask chromium), or set {SETTING} to the path of one"
        )
    return found


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Yields a Chromium without a window. Raises NoChromium."""
    path = executable()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path)
        try:
            yield browser
        finally:
            await browser.close()
