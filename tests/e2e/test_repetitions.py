"""docs/use/client.js does what it says."""

import asyncio
import json
import shutil
from pathlib import Path

from tests.e2e.conftest import Stack
from tests.support.paths import ROOT
from tests.typescript.test_types import program

CLIENT = ROOT / "docs" / "use" / "client.js"


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
