"""A page of another origin reads the API's headers, in a real browser, past a host that answers CORS."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from playwright.async_api import Browser, Page

from devstack.testing import Stack
from tests.support.contacts import DETAILS_JSON
from tests.support.paths import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(120), pytest.mark.asyncio(loop_scope="module")]

CALL = """async ([url, options]) => {
    try {
        const answer = await fetch(url, options);
        const headers = Object.fromEntries(answer.headers.entries());
        return { status: answer.status, headers, body: await answer.text() };
    } catch (error) {
        return { refused: String(error) };
    }
}"""


async def serving() -> tuple[web.AppRunner, str]:
    """An empty page at an origin of its own."""

    async def page(_: web.Request) -> web.Response:
        return web.Response(text="<!doctype html><title>elsewhere</title>", content_type="text/html")

    application = web.Application()
    application.router.add_get("/", page)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def origins() -> AsyncIterator[list[str]]:
    """One that may call, and one that may not."""
    servers = [await serving(), await serving()]
    yield [origin for _, origin in servers]
    for runner, _ in servers:
        await runner.cleanup()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(tmp_path_factory: pytest.TempPathFactory, origins: list[str]) -> AsyncIterator[Stack]:
    settings = {"PYTHONPATH": str(ROOT), "DEVSTACK_MASTER_KEY": "m", "DEVSTACK_FUNCTION_KEY": "f"}
    folder: Path = tmp_path_factory.mktemp("stack")
    with Stack(folder, settings) as started:
        await asyncio.to_thread(started.make, ROOT)
        await asyncio.to_thread(started.run, ROOT, "--keys", f"--cors={origins[0]}")
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def pages(browser: Browser, origins: list[str]) -> AsyncIterator[list[Page]]:
    context = await browser.new_context()
    try:
        opened = [await context.new_page() for _ in origins]
        for page, origin in zip(opened, origins, strict=True):
            await page.goto(origin)
        yield opened
    finally:
        await context.close()


async def test_a_page_that_may_call_reads_version_place_and_when_to_come_back(
    pages: list[Page], stack: Stack
) -> None:
    api, key = f"{stack.functions.address}api", {"x-functions-key": "f"}

    async def call(path: str, method: str, body: Any = None, **headers: str) -> Any:
        options = {"method": method, "headers": key | headers}
        if body is not None:
            options |= {"body": body}
        return await pages[0].evaluate(CALL, [f"{api}/{path}", options])

    typed = {"Content-Type": "application/json"}
    made = await call("contacts", "POST", json.dumps(DETAILS_JSON), **typed, **{"Idempotency-Key": "k"})
    assert made["status"] == 201
    assert {"etag", "location", "x-correlation-id"} <= set(made["headers"])
    path = made["headers"]["location"].removeprefix("/api/")
    again = await call("contacts", "POST", json.dumps(DETAILS_JSON), **typed, **{"Idempotency-Key": "k"})
    assert again["headers"]["idempotency-replayed"] == "true"
    changed = await call(
        path, "PATCH", '{"description": "x"}', **typed, **{"If-Match": made["headers"]["etag"]}
    )
    assert changed["status"] == 200
    assert changed["headers"]["etag"] != made["headers"]["etag"]
    assert (await call(path, "GET"))["headers"]["etag"] == changed["headers"]["etag"]
    stale = await call(path, "DELETE", **{"If-Match": made["headers"]["etag"]})
    assert stale["status"] == 412
    assert (await call(path, "DELETE", **{"If-Match": changed["headers"]["etag"]}))["status"] == 204
    assert (await call(path, "POST"))["headers"]["allow"] == "DELETE, GET, HEAD, PATCH, PUT"
    stack.cosmos.kill()
    away = await call(path, "GET")
    assert (away["status"], int(away["headers"]["retry-after"]) >= 1) == (503, True)
    await asyncio.to_thread(stack.cosmos.start)


async def test_a_page_of_any_other_origin_reads_nothing(pages: list[Page], stack: Stack) -> None:
    api = f"{stack.functions.address}api"
    for options in ({}, {"headers": {"x-functions-key": "f"}}, {"method": "DELETE"}):
        answer = await pages[1].evaluate(CALL, [f"{api}/health", options])
        assert answer == {"refused": "TypeError: Failed to fetch"}
