"""Runs the subscribers' functions as the Functions host does: their own code runs; their errors decide the settlement.

There is no retry but the transport's. Which messages a function gets, and when one comes again, is the trigger's part:
:mod:`outbox_simulation.engine.session_host` and :mod:`outbox_simulation.engine.queue_host`.
"""

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from unittest.mock import patch

from cosmos_outbox.operations.subscriber import Subscription
from cosmos_outbox.service import Wired
from outbox_simulation.engine.host import STOP_SECONDS, Host

if TYPE_CHECKING:
    from azure.functions.decorators.function_app import Function

_TIMERS = {"watch_": 60.0, "walk_": 600.0}


@dataclass(kw_only=True)
class SubscriberHost(Host, ABC):
    """A host that receives."""

    environment: Mapping[str, str]
    """The environment of its process: the decorators name settings."""

    @abstractmethod
    def listen(self, subscription: Subscription, function: "Function") -> Sequence[asyncio.Task[None]]:
        """Begins to pass its messages to the function. After a stop each task ends its current work."""

    async def run(self) -> None:
        """Runs until a stop is requested."""
        async with self.wired.resources:
            works, timers = list[asyncio.Task[None]](), list[asyncio.Task[None]]()
            with patch.dict(os.environ, self.environment):
                functions = _functions(self.wired)
                for name, each in self.wired.subscriptions.items():
                    function = name.replace("-", "_")
                    works += self.listen(each, functions[function])
                    timers += [
                        asyncio.create_task(
                            self.every(seconds, functions[kind + function].get_user_function())
                        )
                        for kind, seconds in _TIMERS.items()
                        if kind + function in functions
                    ]
            await self.stop.wait()
            for timer in timers:
                timer.cancel()
            await asyncio.wait([*works, *timers], timeout=STOP_SECONDS)
            for work in works:
                work.cancel()
            await asyncio.wait(works)


def _functions(wired: Wired) -> "Mapping[str, Function]":
    """Returns the subscribers' functions, by their names."""
    import azure.functions as func  # noqa: PLC0415 - of an extra

    from cosmos_outbox.functions.subscription import subscription_functions  # noqa: PLC0415

    app = func.FunctionApp()
    for each in wired.service.subscribers:
        app.register_functions(subscription_functions(wired.service, each))
    return {str(each.get_function_name()): each for each in app.get_functions()}
