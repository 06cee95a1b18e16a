"""Tests do not wait for what the Service Bus SDK sleeps: half a second as a link opens, a second as a client closes.

It looks ten times whether a link is open, and a client that closes waits until its keep-alive has slept. In the process
of the tests both are short naps; what is sent over the socket stays the same. Programs that tests start sleep as ever.
"""

import asyncio
from types import ModuleType
from typing import Any

from azure.servicebus._pyamqp.aio import _client_async
from azure.servicebus.aio import _servicebus_receiver_async, _servicebus_sender_async

_NAPS = {0.05: 0.001, 1: 0.05}
"""What the SDK sleeps, and what it sleeps here; its pauses before it tries again are others."""


class _Asyncio:
    """As the module, but for naps."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(_NAPS.get(seconds, seconds))


def install() -> None:
    """Again is as good as once."""
    modules: tuple[ModuleType, ...] = (_client_async, _servicebus_receiver_async, _servicebus_sender_async)
    for module in modules:
        vars(module)["asyncio"] = _Asyncio()
