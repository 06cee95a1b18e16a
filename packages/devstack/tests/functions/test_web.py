"""A web page is served at an origin of its own, knows where the app is, and may call it."""

from pathlib import Path

import aiohttp
import pytest

from devstack.functions import web
from devstack.service import CannotStart
from functions.support import host

PAGE = '<!doctype html><meta name="api" content="http://127.0.0.1:7071/api/">'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "page"
    (folder / "parts").mkdir(parents=True)
    (folder / "index.html").write_text(PAGE)
    (folder / "parts" / "a.mjs").write_text("// http://127.0.0.1:7071 stays\n")
    for hidden in ("README.md", ".secret.json"):
        (folder / hidden).write_text("x")
    (tmp_path / "outside.json").write_text("x")
    (folder / "link.json").symlink_to(tmp_path / "outside.json")
    return folder


async def test_the_page_gets_the_apps_address_and_may_call_it(tmp_path: Path, folder: Path) -> None:
    with host(tmp_path / "host", "http", None, f"--web={folder}", "--web-port=0") as service:
        app, page = service.addresses
        async with aiohttp.ClientSession() as http:
            async with http.get(page) as answer:
                assert await answer.text() == PAGE.replace("http://127.0.0.1:7071/", app)
                assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
                assert answer.headers["Content-Security-Policy"] == "frame-ancestors 'none'"
            async with http.get(f"{page}parts/a.mjs") as answer:
                assert await answer.text() == "// http://127.0.0.1:7071 stays\n"
                assert answer.content_type == "text/javascript"
            for origin in (page.rstrip("/"), page.rstrip("/").replace("127.0.0.1", "localhost")):
                async with http.get(f"{app}api/echo/a", headers={"Origin": origin}) as answer:
                    assert answer.headers["Access-Control-Allow-Origin"] == origin
            async with http.get(f"{app}api/echo/a", headers={"Origin": app.rstrip("/")}) as answer:
                assert "Access-Control-Allow-Origin" not in answer.headers


@pytest.mark.parametrize(
    "path",
    ["README.md", ".secret.json", "nothing.html", "parts", "..%2Foutside.json", "link.json", "a%00.html"],
)
async def test_nothing_but_the_page_is_served(folder: Path, path: str) -> None:
    async with web.serve(folder, 0) as page, aiohttp.ClientSession() as http:
        async with http.get(f"{page.address}{path}") as answer:
            assert answer.status == 404
        async with http.post(page.address) as answer:
            assert answer.status == 405


async def test_a_folder_without_a_page_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match=r"index\.html"):
        async with web.serve(tmp_path, 0):
            pass
