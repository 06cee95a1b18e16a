"""The relay sends in the background and returns: the feed moves on before Service Bus has the events."""

import asyncio

from tests.torture.bugs.deployed import FORWARD, deployed_but

_sending: set[asyncio.Task[object]] = set()

app = deployed_but(
    FORWARD,
    FORWARD.replace("await ", "sending.add(asyncio.create_task(") + "))",
    asyncio=asyncio,
    sending=_sending,
)
