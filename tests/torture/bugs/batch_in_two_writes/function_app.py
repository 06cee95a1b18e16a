"""The contact is stored first and its events later: a crash between the two leaves a change without events."""

from collections.abc import Sequence

import infra.wiring
from infra.cosmos.container import Container, Write
from tests.torture.bugs.deployed import deployed_but, plant


class _TwoWrites(Container):
    async def execute(self, partition_key: str, writes: Sequence[Write]) -> list[str]:
        first = await super().execute(partition_key, writes[:1])
        return first + (await super().execute(partition_key, writes[1:]) if writes[1:] else [])


plant(infra.wiring, "Container", _TwoWrites)
app = deployed_but()
