"""The journal keeps the contract of publishers."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

from cosmos_outbox.publisher import CloudEvents, Publisher
from cosmos_outbox.testing import Broker, PublisherContract
from examples.journal.journal import Journal


class TestJournal(PublisherContract):
    @asynccontextmanager
    async def opened(self, folder: Path) -> AsyncIterator[Broker]:
        file, service = folder / "journal", CloudEvents("/test")

        async def receive(aggregate: str, count: int) -> list[str]:
            events = map(json.loads, file.read_text().splitlines() if file.exists() else ())
            return [each.get("messageid", each["id"]) for each in events if each["subject"] == aggregate]

        away: Publisher = Journal(folder / "no-such-folder" / "journal", service)
        yield Broker(Journal(file, service), receive, lambda: nullcontext(away))
