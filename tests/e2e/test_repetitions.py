"""A repeated change stores nothing, and docs/use/client.js does what it says."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import aiohttp

from tests.e2e.conftest import Stack
from tests.support.paths import ROOT
from tests.typescript.test_types import program

CLIENT = ROOT / "docs" / "use" / "client.js"


async def patched(http: aiohttp.ClientSession, url: str, patch: dict[str, Any], **headers: str) -> str:
    async with http.patch(url, json=patch, headers=headers) as answer:
        assert answer.status == 200
        return answer.headers["ETag"]


async def test_a_repeated_patch_stores_nothing_when_nobody_came_in_between(
    shared_stack: Stack, http: aiohttp.ClientSession
) -> None:
    contact = await shared_stack.create(http)
    url = f"{shared_stack.url}/contacts/{contact['id']}"
    first = await patched(http, url, {"description": "mine"})
    assert await patched(http, url, {"description": "mine"}) == first


async def test_the_client_of_the_page_repeats_merges_and_turns_pages(
    shared_stack: Stack, tmp_path: Path
) -> None:
    """docs/use/client.js, in Node.js; ``api_client.mjs`` loses and refuses answers on their way."""
    client = CLIENT.read_text()
    address, shown = shared_stack.functions.address.rstrip("/"), "http://127.0.0.1:7071"
    assert client.count(shown) == 1
    own_wait = "const setTimeout = (...given) => globalThis.wait(...given);\n"
    (tmp_path / "client.mjs").write_text(own_wait + client.replace(shown, address))
    shutil.copy(Path(__file__).with_name("api_client.mjs"), tmp_path)
    process = await asyncio.create_subprocess_exec(
        program("node"), tmp_path / "api_client.mjs", address,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, failed = await process.communicate()
    assert process.returncode == 0, failed.decode()
    assert json.loads(out) == {
        "waits": [1000, 7000],
        "keys": 1,
        "again": True,
        "contacts": 1,
        "merged": ["a rival's", "Contoso", 3, []],
        "conflict": ["a rival's", "once@example.org", ["description"]],
        "refused": [400, "email"],
        "given_up": "fetch failed",
        "paged": [3, True, True],
        "changed": [True, True, "after the look", True],
    }
