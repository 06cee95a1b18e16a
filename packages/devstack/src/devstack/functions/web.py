"""A web page that calls the app has an origin of its own, as it has in Azure, and may call because CORS says so.

Its folder is served as it is, but for one thing: in its HTML ``http://127.0.0.1:7071`` becomes the address at which the
app listens. What no browser asks for, and what begins with a dot, is not there.
"""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from devstack.http_server import EVERY_PATH, http_runner
from devstack.service import CannotStart, port_errors

PORT = 7072
USUAL = "http://127.0.0.1:7071"
"""Where the app listens unless it is configured otherwise."""

KINDS = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
}
"""What a page consists of."""

_HEADERS = {
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "frame-ancestors 'none'",
}
"""A policy inside the page cannot say who may frame it; all else it says itself."""


@dataclass
class WebPage:
    """A folder that is being served."""

    folder: Path
    port: int = 0
    api: str = USUAL

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    @property
    def origins(self) -> str:
        """As a browser calls it, by number or by name."""
        return f"http://127.0.0.1:{self.port},http://localhost:{self.port}"

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method not in ("GET", "HEAD"):
            return web.Response(status=405, headers={"Allow": "GET, HEAD"})
        file = self._file(request.path)
        if file is None:
            return web.Response(status=404)
        content = file.read_bytes()
        if file.suffix == ".html":
            content = content.replace(USUAL.encode(), self.api.encode())
        return web.Response(body=content, content_type=KINDS[file.suffix], charset="utf-8", headers=_HEADERS)

    def _file(self, path: str) -> Path | None:
        parts = path.strip("/").split("/") if path != "/" else ["index.html"]
        file = self.folder.joinpath(*parts)
        if file.suffix not in KINDS or any(each.startswith(".") or "\0" in each for each in parts):
            return None
        return file if file.is_file() and file.resolve().is_relative_to(self.folder.resolve()) else None


@contextlib.asynccontextmanager
async def serve(folder: Path, port: int) -> AsyncIterator[WebPage]:
    """Serve a folder; 0 is any free port. Raises CannotStart."""
    if not (folder / "index.html").is_file():
        raise CannotStart(f"there is no {folder / 'index.html'}: name a folder with a page, or leave it out")
    page = WebPage(folder)
    application = web.Application()
    application.router.add_route("*", EVERY_PATH, page.answer)
    runner = http_runner(application, shutdown_timeout=0.5)
    await runner.setup()
    try:
        with port_errors("functions", port, "WEB_PORT"):
            await web.TCPSite(runner, "127.0.0.1", port).start()
        page.port = runner.addresses[0][1]
        yield page
    finally:
        await runner.cleanup()
