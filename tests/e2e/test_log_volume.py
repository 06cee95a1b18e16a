"""How many lines the app logs for a change is bounded: telemetry is paid for by its volume."""

import asyncio
import re
from collections import Counter

import aiohttp
import pytest

from devstack.testing import eventually
from tests.e2e.conftest import Stack
from tests.support.emulators import Gap

CONTACTS, CHANGES, PROPERTIES = 4, 3, 2
LINE = re.compile(r"[\d:.]+ (\w+)  (.*)")
LONGEST_LINE = 400


@pytest.mark.known_gap(Gap.CHANGE_FEED)
async def test_a_change_costs_one_line_a_page_one_line_and_an_event_two_lines_at_most(
    shared_stack: Stack, http: aiohttp.ClientSession
) -> None:
    before = len(shared_stack.log().splitlines())

    async def one() -> str:
        contact = await shared_stack.create(http)
        for number in range(CHANGES):
            name = {"firstName": f"J{number}", "lastName": "Doe"}
            await shared_stack.patch(http, contact["id"], name=name, description=f"change {number}")
        return str(contact["id"])

    contacts = await asyncio.gather(*(one() for _ in range(CONTACTS)))
    changes, events = CONTACTS * (1 + CHANGES), CONTACTS * (1 + CHANGES * PROPERTIES)

    def lines() -> list[tuple[str, str]]:
        new = shared_stack.log().splitlines()[before:]
        matches = [match for line in new if (match := LINE.fullmatch(line))]
        return [(match[1], match[2]) for match in matches if match[1] != "host"]

    def all_received() -> bool:
        return sum("received " in text for function, text in lines()) >= events

    await eventually(all_received)
    await asyncio.gather(*(shared_stack.sequences(each, 1 + CHANGES * PROPERTIES) for each in contacts))

    told = lines()
    counted = Counter(function for function, _ in told)
    assert counted["create_contact"] + counted["patch_contact"] == changes
    pages = sum(text.startswith("forwarded ") for _, text in told)
    once = [text for function, text in told if function == "relay" and "connection(s) to Service Bus" in text]
    # A page that waits, since the broker stood still, costs two lines: how many events, and why.
    waited = sum(text.startswith("error: ") and "event(s) wait" in text for _, text in told)
    assert counted["relay"] - len(once) == pages + 2 * waited
    assert pages <= events
    assert counted["contact_directory"] <= 2 * events
    assert max(len(text) for _, text in told) <= LONGEST_LINE
