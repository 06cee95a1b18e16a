"""One Chromium and one service that answers as set for the tests of a file."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.browser.fake_service import FakeService, serving
from tools.screenshot.chromium import NoChromium, chromium

expect.set_options(timeout=15_000)  # a busy machine is slow; what is there sooner is found sooner


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    """The Chromium of this machine; a machine without one fails with the line that says how to install it."""
    try:
        async with chromium() as started:
            yield started
    except NoChromium as problem:
        pytest.fail(str(problem), pytrace=False)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def one_service() -> AsyncIterator[FakeService]:
    async with serving(FakeService()) as service:
        yield service


@pytest.fixture
def service(one_service: FakeService) -> FakeService:
    """A service in which nothing is wrong yet."""
    one_service.reset()
    return one_service
