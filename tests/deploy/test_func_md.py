"""The commands of docs/internals/func.md work: run on devstack where no tool of Azure is needed, else read."""

import asyncio
import json
import re
import shlex
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from devstack.testing import Service, eventually
from devstack.testing.service import running
from devstack.testing.stack import STOP_SECONDS
from tests.deploy.test_workflows import smoke
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "internals" / "func.md").read_text()
SAMPLE = json.loads((ROOT / "local.settings.sample.json").read_text())["Values"]
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
[SNIPPET] = re.findall(r"<<'END'\n(.*?)END\n", PAGE, re.DOTALL)
CONFIG = ROOT / "deploy" / "emulators" / "Config.json"


def follow(folder: Path, cosmos: Service, servicebus: Service | None = None) -> Path:
    """What the page says: copy the sample, make the containers. The settings; only the ports are the test's own."""
    (folder / "devstack.toml").symlink_to(ROOT / "devstack.toml")
    values = SAMPLE | {"COSMOS": cosmos.connection_string}
    if servicebus:
        values["SERVICEBUS"] = servicebus.connection_string
    settings = folder / "local.settings.json"
    settings.write_text(json.dumps({"IsEncrypted": False, "Values": values}))
    with chdir(folder):
        exec(SNIPPET, {})
    return settings


@pytest.fixture
def cosmos(tmp_path: Path) -> Iterator[Service]:
    """One of its own: the page makes the database under the sample's name."""
    with running(Service("cosmos", tmp_path / "cosmos")) as service:
        yield service


@pytest.mark.long  # test_run and test_settings at every run
async def test_the_app_runs_with_what_the_page_makes_and_sets(cosmos: Service, tmp_path: Path) -> None:
    """In place of the emulators and of func start, devstack's servers with the emulator's Config.json, and its host."""
    with running(Service("servicebus", tmp_path / "servicebus", f"--config={CONFIG}")) as servicebus:
        settings = await asyncio.to_thread(follow, tmp_path, cosmos, servicebus)
        options = (f"--app={ROOT}", f"--settings={settings}", f"--stop-seconds={STOP_SECONDS:g}")
        host = Service("functions", tmp_path / "functions", *options)
        with running(host):
            ended = await asyncio.to_thread(smoke, host.address, host.log, 30)
            assert (ended.returncode, ended.stderr) == (0, "")
            assert "went all the way" in ended.stdout
            api = host.address.rstrip("/") + "/api"
            [curl] = [block for block in BLOCKS if block.startswith("curl ")]
            words = shlex.split(curl.replace("http://127.0.0.1:7071/api", api))
            async with aiohttp.ClientSession() as http:
                contact = await paste(http, words)

                async def found() -> bool:
                    page = await read(http, f"{api}/directory?name=john")
                    return contact["id"] in [entry["id"] for entry in page["items"]]

                await eventually(found, what="the contact in the directory")
                assert (await read(http, f"{api}/stuck"))["items"] == []
                async with http.get(f"{api}/dependencies") as answer:
                    assert answer.status == 200, await answer.text()
        log = host.log.read_text()
        # The page quotes the line; a container that is missing is an error of a timer or a call.
        assert re.search(rf"received ContactCreatedEvent \S+ of contact {contact['id']}, sequence 1", log)
        assert "NotFound" not in log


async def paste(http: aiohttp.ClientSession, words: list[str]) -> dict[str, Any]:
    """Do what a curl line does."""
    [url] = [word for word in words if word.startswith("http")]
    name, _, value = words[words.index("-H") + 1].partition(": ")
    async with http.post(url, data=words[words.index("-d") + 1], headers={name: value}) as answer:
        assert answer.status == 201, await answer.text()
        contact: dict[str, Any] = await answer.json()
        return contact


async def read(http: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    async with http.get(url) as answer:
        assert answer.status == 200, await answer.text()
        page: dict[str, Any] = await answer.json()
        return page
