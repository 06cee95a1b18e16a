"""An idle system delivers an event soon."""

import statistics
import time
from functools import partial

import aiohttp
import pytest

from devstack.testing import eventually
from tests.e2e.conftest import Stack
from tests.support.emulators import Gap


def received(stack: Stack, contact_id: str) -> bool:
    what = f"of contact {contact_id}, sequence 1 ["
    return any("received" in line and what in line for line in stack.log().splitlines())


@pytest.mark.known_gap(Gap.CHANGE_FEED)
async def test_the_subscriber_logs_soon_what_arrived(
    shared_stack: Stack, http: aiohttp.ClientSession
) -> None:
    seconds = []
    for _ in range(7):
        contact = await shared_stack.create(http)
        stored = time.monotonic()
        await eventually(partial(received, shared_stack, contact["id"]), what="the subscriber's log line")
        seconds.append(time.monotonic() - stored)
    assert statistics.median(seconds) < 1.0, seconds
