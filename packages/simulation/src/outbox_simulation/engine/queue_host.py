"""Runs the Functions host's queue trigger: devstack's own, checked against Azurite, around a subscriber's function.

As the real host has it: a batch at once, each message hidden for ten minutes and for longer while its function
runs. After a return it is deleted; after an error it comes again, after a pause if host.json has one, until it has come
too often and is moved to the poison queue. A host that dies, or cannot settle a message, leaves it hidden.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from azure.functions.decorators.function_app import Function

from cosmos_outbox.operations.subscriber import Subscription
from devstack.functions.connections import Clients
from devstack.functions.host_json import QueuesOptions
from devstack.functions.indexing import FunctionInfo
from devstack.functions.invocation import CONVERTERS, FunctionFailed, Input, RpcException
from devstack.functions.listener import Stop
from devstack.functions.queue_trigger import QueueTrigger
from outbox_simulation.engine.host import STOP_SECONDS, Call, InvocationContext
from outbox_simulation.engine.subscriber_host import SubscriberHost

if TYPE_CHECKING:
    from azure.core.pipeline.transport import AsyncHttpTransport

HOST_JSON = (
    QueuesOptions(max_polling_interval=60.0),  # the extension's default in Azure
    QueuesOptions(4, 0, max_polling_interval=2.0, max_dequeue_count=20, visibility_timeout=10.0),
)
"""A service's own host.json: the template's, which has no section for queues, and that of ``examples/imports``."""

_RETRIES = {"retry_total": 3, "initial_backoff": 0, "increment_base": 2, "random_jitter_range": 0}
"""The retries of Azure's SDK for .NET: the real host asks three times more, within seconds."""
_STOP = Stop(STOP_SECONDS - 2.0, drain=True)
"""It closes in the remaining time."""


@dataclass(kw_only=True)
class QueueHost(SubscriberHost):
    """A host whose subscriptions are queues of a storage account."""

    http: "Callable[[], AsyncHttpTransport[Any, Any]]"
    """Creates a client's HTTP transport."""
    options: QueuesOptions
    """The options of host.json."""

    def listen(self, subscription: Subscription, function: Function) -> Sequence[asyncio.Task[None]]:
        """Returns one task, whose messages have tasks of their own."""
        clients = Clients(queue_options={**_RETRIES, "transport": self.http()})
        self.wired.resources.push_async_callback(clients.close)
        trigger = function.get_trigger()
        assert trigger is not None, "each function has one"
        name = str(function.get_function_name())
        info = FunctionInfo(name, trigger.get_dict_repr(), retry=None, disabled=False)
        calls = _Calls(self, function.get_user_function())
        listener = QueueTrigger(info, calls, clients, self.options, self.chance.uniform)
        return [asyncio.create_task(self._serve(listener))]

    async def _serve(self, listener: QueueTrigger) -> None:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(listener.run())
            await self.stop.wait()
            await listener.stop(_STOP)
            running.cancel()


@dataclass(frozen=True)
class _Calls:
    """Calls one function in this process, as the host's worker does."""

    host: QueueHost
    call: Call

    async def invoke(self, function: str, value: Input, **_: object) -> None:
        """Raises FunctionFailed."""
        message = CONVERTERS["queueTrigger"].decode(value.value, trigger_metadata=value.metadata)
        error = await self.host.invoke(self.call, message, InvocationContext())
        if error is not None:
            self.host.trace.note("host abandons", detail=f"{message.id} of {function}: {error!r}")
            raise FunctionFailed(RpcException(message=repr(error)))
