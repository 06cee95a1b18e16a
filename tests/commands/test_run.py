"""``make run`` starts the stack and the app, and the curl line that it prints works."""

import os
import re
import shlex
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from devstack.testing import eventually
from devstack.testing.command import Command, running_command
from tests.support.paths import ROOT


async def _paste(running: Command) -> dict[str, Any]:
    """Do what the printed curl line does; the contact it made."""
    command = shlex.split(_curl(running))
    url = next(word for word in command if word.startswith("http://"))
    name, _, value = command[command.index("-H") + 1].partition(": ")
    body = command[command.index("-d") + 1]
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, data=body, headers={name: value}) as answer,
    ):
        assert answer.status == 201, await answer.text()
        contact: dict[str, Any] = await answer.json()
        return contact


async def _arrived(running: Command, contact: dict[str, Any]) -> None:
    """The app's subscriber says so, in one line."""
    received = re.compile(rf"^functions +\| .*received .*{contact['id']}, sequence 1 \[.+\]$", re.MULTILINE)
    await eventually(lambda: received.search(running.output), what="the subscriber's line")


async def _page_may_call(running: Command) -> None:
    """The printed page names the API's address, and its origin is let in there."""
    page, api = running.address("Web page"), running.address("Functions").removesuffix("contacts")
    async with aiohttp.ClientSession() as session:
        async with session.get(page) as answer:
            assert f'<meta name="api" content="{api}">' in await answer.text()
        async with session.get(f"{api}directory", headers={"Origin": page.rstrip("/")}) as answer:
            assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (200, page.rstrip("/"))


async def test_the_curl_line_works_and_its_event_arrives(tmp_path: Path) -> None:
    with running_command(ROOT, tmp_path) as running:
        assert len(running.processes()) == 4
        contact = await _paste(running)
        await _arrived(running, contact)
        await _page_may_call(running)
        assert "johndoe@contoso.com" not in running.output.replace(_curl(running), "")
        assert running.end() == 0
        assert running.processes() == []
        assert "Traceback" not in running.output
        assert (
            "never" not in running.output
        )  # as in "coroutine was never awaited", "session was never closed"


@pytest.mark.long
async def test_whichever_service_is_killed_the_app_goes_on(tmp_path: Path) -> None:
    with running_command(ROOT, tmp_path) as running:
        for name in ("servicebus", "cosmos"):
            await _kill(running, name)
            await _arrived(running, await _paste(running))
        # The event of this one waits until the killed host's lease runs out, as in Azure: other tests see to that.
        await _kill(running, "functions")
        await _paste(running)

        for name in ("servicebus", "cosmos", "functions"):
            os.kill(running.process_of(name), signal.SIGSTOP)  # none will end by itself
        assert running.end() == 0
        assert running.processes() == []


async def _kill(running: Command, service: str) -> None:
    os.kill(running.process_of(service), signal.SIGKILL)
    await eventually(lambda: f"{service} is back on" in running.output)


def _curl(running: Command) -> str:
    return next(line for line in running.lines if line.strip().startswith("curl "))
