"""The lines of docs/use/own-container.md do what the page says; docs/internals/event-document.md is what is stored."""

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cosmos_outbox.cosmos.aggregates.documents import EventReader, is_as_committed
from cosmos_outbox.cosmos.store.partition_key import PartitionKeyPaths
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.service import Service
from devstack.testing import Service as Server
from tests.support.own import World, world_of
from tests.support.paths import ROOT

PAGE, FORM = (
    (ROOT / "docs" / name).read_text() for name in ("use/own-container.md", "internals/event-document.md")
)


def fenced(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


@pytest.fixture
async def lines(
    cosmos_server: Server, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[World, dict[str, Any]]]:
    """The page's own names, and the world in which they work."""
    named: dict[str, Any] = {}
    exec("\n".join(fenced(PAGE, "python")), named)  # the reader's own file
    service = named["service"]
    assert isinstance(service, Service)
    async with world_of(service, cosmos_server) as world:
        for name, value in world.environment.items():
            monkeypatch.setenv(name, value)
        async with service().outbox.resources:
            yield world, named


def test_the_example_is_as_short_as_it_says() -> None:
    _, transaction, *_ = fenced(PAGE, "python")
    assert len([line for line in transaction.splitlines() if line and '"""' not in line]) <= 10


async def test_the_lines_of_the_page_store_a_document_and_its_event(
    lines: tuple[World, dict[str, Any]],
) -> None:
    world, named = lines
    key = {"tenantId": "acme", "bookingId": "b-17"}
    await world.proxy.create_item(
        {"id": "b-17", **key, "type": "booking", "day": "Monday", "lastSequence": 0}
    )
    booking = dict(await world.proxy.read_item("b-17", ["acme", "b-17"]))

    etag = await named["move"](booking, "Friday")

    stored = await world.proxy.read_item("b-17", ["acme", "b-17"])
    assert (stored["day"], stored["lastSequence"], stored["_etag"]) == ("Friday", 1, etag)
    [event] = await world.events()
    assert event["data"]["action"] == "BookingMoved"
    written = set(event) - {name for name in event if name.startswith("_")}
    rows = set(re.findall(r"^\| `(\w+)` \|", FORM.partition("## In `data`")[0], re.MULTILINE))
    assert written == rows | set(key), "the table has each field of a stored event"

    inbox = named["service"]().read_model(named["BOARD"]).inbox
    await inbox.heal(AggregateKey("booking", "b-17"))
    entry = await inbox.entries.newest(AggregateKey("booking", "b-17"))
    assert (entry.entry.last_sequence, entry.entry.state.day) == (1, "Friday")


def test_the_document_on_the_page_is_one_that_the_relay_sends() -> None:
    [example] = map(json.loads, fenced(FORM, "json"))
    paths = PartitionKeyPaths(("/tenantId", "/bookingId"))
    assert is_as_committed(example, paths)
    event = EventReader(paths=paths).event(example)
    assert isinstance(event, OutboxEvent)
    assert (event.aggregate, event.sequence) == (("booking", "b-17"), 7)
