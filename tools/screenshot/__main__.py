"""``python -m tools.screenshot``: starts the service with sample data, and writes docs/operate/page.png."""

import asyncio
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Literal

from tools.required import require

if __name__ == "__main__":
    require("screenshot")

from devstack.testing import Stack
from tools.screenshot.chromium import NoChromium, chromium
from tools.screenshot.stage import staged

Scheme = Literal["light", "dark"]

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs" / "operate" / "page.png"
WIDTH, HEIGHT = 1280, 1010
SECONDS = 20.0
"""How long traffic runs, so that the charts show something."""

TOPIC = "contact-events"


async def _take(url: str, picture: Path, scheme: Scheme) -> None:
    async with chromium() as browser:
        page = await browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=scheme)
        await page.goto(f"{url}/operations")
        await page.get_by_role("heading", name="look at").wait_for()
        await asyncio.sleep(SECONDS)
        await page.screenshot(path=picture)


async def _play(folder: Path, picture: Path, scheme: Scheme) -> None:
    with Stack(folder, {"PYTHONPATH": str(ROOT), "RELAY_SEND_SECONDS": "5"}) as stack:
        stack.make(ROOT)
        stack.run(ROOT)
        async with staged(stack, TOPIC) as stage:
            await stage.park(behind=2)
            await stage.park()
            await stage.refuse_a_message()
            await stage.break_an_entry()
            traffic = asyncio.create_task(stage.traffic())
            try:
                await _take(stage.url, picture, scheme)
            finally:
                traffic.cancel()
                with suppress(asyncio.CancelledError):
                    await traffic


def main(arguments: list[str]) -> int:
    """Takes the picture, or one with the path and the colour scheme that the arguments name; returns the exit code."""
    picture = Path(arguments[0]) if arguments else PICTURE
    scheme: Scheme = "dark" if "dark" in arguments[1:] else "light"
    with tempfile.TemporaryDirectory() as folder:
        try:
            asyncio.run(_play(Path(folder), picture, scheme))
        except NoChromium as problem:
            print(f"screenshot: {problem}", file=sys.stderr)
            return 2
    print(f"screenshot: {picture}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
