"""Writes into the service's container from outside: another version of it, a broken event, or a note."""

import asyncio
import random
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from uuid import UUID

from azure.core.exceptions import AzureError

from outbox_simulation.engine.deployment import Deployment
from outbox_simulation.engine.system_under_test import ActAsOthers, Others
from outbox_simulation.invariants.records import Poisoned

_OF_OTHER_VERSIONS = 0.5
"""The share of writes by other versions of the service, if it declares their commands."""


class PastTheService:
    """The writers that go past the service."""

    def __init__(
        self,
        deployment: Deployment,
        others: ActAsOthers | None,
        known: Mapping[str, object],
        broken: set[str],
    ) -> None:
        """``known``: the existing aggregates; ``broken``: takes the documents that an operator has to discard."""
        self._deployment, self._ground = deployment, deployment.ground
        self._others, self._known, self._broken = others, known, broken

    async def write(self, chance: random.Random) -> None:
        """Writes a document: one that the service can take, a broken event, or one that is no event."""
        if self._others is not None and self._known and chance.random() < _OF_OTHER_VERSIONS:
            ground = self._ground
            feed = self._deployment.settings.cosmos_container
            others = Others(
                ground.loop.time, chance, ground.history, lambda: self._deployment.container(feed)
            )
            await self._others(others, chance.choice(sorted(self._known)))
            return
        name, aggregates = str(UUID(int=chance.getrandbits(128), version=4)), sorted(self._known)
        aggregate = chance.choice(aggregates) if aggregates and chance.random() < 0.7 else None
        partition = aggregate or name
        document: dict[str, Any] = {"id": name, "partitionKey": partition, "type": "note", "text": "hello"}
        broken = chance.random() < 0.7
        if broken:
            data = chance.choice(["nonsense", {"id": name}, [1, 2], None])
            document |= {"type": "domainEvent", "data": data}
            self._broken.add(name)
            self._poisoned(name, partition, aggregate, stored=None)
        with suppress(AzureError, TimeoutError):
            async with (
                asyncio.timeout(30),
                self._deployment.container(self._deployment.settings.cosmos_container) as feed_container,
            ):
                await feed_container.create_item(document)
            if broken:
                self._poisoned(name, partition, aggregate, stored=True)
        self._ground.trace.note("others write", partition, f"{name}, {document['type']}")

    def _poisoned(self, document: str, partition: str, aggregate: str | None, *, stored: bool | None) -> None:
        poisoned = Poisoned(
            at=self._ground.loop.time(),
            document=document,
            partition=partition,
            stored=stored,
            aggregate=aggregate,
        )
        self._ground.history.add([poisoned])
