"""The Functions host around the subscribers' functions: their own code runs, and the host settles by what it raised.

As the real host has it: some sessions at once, one message of a session at a time, each lock renewed while the session
is held. What returned is completed and what raised is abandoned, after which it comes again at once, until the broker
makes a dead letter of it. A session that is lost ends the host's wait and not the call; where the host stops, also what
succeeded is abandoned. There is no retry but the broker's.
"""

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from azure.servicebus import NEXT_AVAILABLE_SESSION
from azure.servicebus.aio import ServiceBusReceiver
from azure.servicebus.exceptions import OperationTimeoutError

from cosmos_outbox.servicebus.bodies import body_of
from cosmos_outbox.servicebus.errors import SDK_ERRORS
from cosmos_outbox.servicebus.sessions import Sessions, renewed
from cosmos_outbox.testing.simulation.host import STOP_SECONDS, Call, Host, InvocationContext
from cosmos_outbox.wiring.canary import with_canary
from cosmos_outbox.wiring.service import Wired
from cosmos_outbox.wiring.subscription import Subscription

_SESSIONS = 3
"""At once, of a subscription: ``maxConcurrentSessions``."""
_WAIT_SECONDS, _IDLE_SECONDS, _PAUSE_SECONDS = 20.0, 0.5, 2.0
_TIMERS = {"watch_": 60.0, "sweep_": 600.0}


@dataclass
class SubscriberHost(Host):
    """One that receives."""

    async def run(self) -> None:
        """Until it is told to stop."""
        async with self.wired.resources:
            functions = _functions(self.wired)
            works, timers = set[asyncio.Task[None]](), set[asyncio.Task[None]]()
            for name, each in self.wired.subscriptions.items():
                function = name.replace("-", "_")
                works |= {
                    asyncio.create_task(self._work(each, functions[function])) for _ in range(_SESSIONS)
                }
                timers |= {
                    asyncio.create_task(self.every(seconds, functions[kind + function]))
                    for kind, seconds in _TIMERS.items()
                    if kind + function in functions
                }
            await self.stop.wait()
            for timer in timers:
                timer.cancel()
            await asyncio.wait({*works, *timers}, timeout=STOP_SECONDS)
            for work in works:
                work.cancel()
            await asyncio.wait(works)

    async def _work(self, subscription: Subscription, function: Call) -> None:
        while not self.stop.is_set():
            try:
                await self._work_on_session(subscription, function)
            except OperationTimeoutError:
                continue  # no session has messages
            except SDK_ERRORS as error:
                self.trace.note("host tells", detail=repr(error).splitlines()[0])
                await self.pause(_PAUSE_SECONDS)

    async def _work_on_session(self, subscription: Subscription, function: Call) -> None:
        sessions = subscription.subscriber.queues().sessions
        assert isinstance(sessions, Sessions), "the simulated broker is Service Bus"
        receiver = sessions.client.get_subscription_receiver(
            sessions.topic,
            sessions.subscription,
            session_id=NEXT_AVAILABLE_SESSION,
            max_wait_time=_WAIT_SECONDS,
        )
        try:
            await receiver.__aenter__()
            async with renewed(receiver.session):
                while not self.stop.is_set():
                    messages = await receiver.receive_messages(1, _IDLE_SECONDS)
                    if not messages:
                        return
                    await self._handle(receiver, messages[0], function)
        finally:
            with suppress(*SDK_ERRORS):
                await receiver.close()

    async def _handle(self, receiver: ServiceBusReceiver, message: Any, function: Call) -> None:
        error = await self.invoke(function, _bound(message), InvocationContext())
        if error is None and not self.stop.is_set():
            await receiver.complete_message(message)
        else:
            self.trace.note("host abandons", detail=f"{message.message_id}: {error!r}")
            await receiver.abandon_message(message)


def _bound(message: Any) -> object:
    """As the function gets it."""
    from azure.functions import meta  # noqa: PLC0415 - of an extra
    from azure.functions.servicebus import ServiceBusMessageInConverter  # noqa: PLC0415

    from devstack.functions.servicebus_message import plain  # noqa: PLC0415

    properties = {plain(name): plain(each) for name, each in (message.application_properties or {}).items()}
    told = {
        "MessageId": meta.Datum(message.message_id, "string"),
        "SequenceNumber": meta.Datum(json.dumps(message.sequence_number), "json"),
        "ApplicationProperties": meta.Datum(json.dumps(properties), "json"),
        "UserProperties": meta.Datum(json.dumps(properties), "json"),
    }
    if message.correlation_id is not None:
        told["CorrelationId"] = meta.Datum(message.correlation_id, "string")
    return ServiceBusMessageInConverter.decode(meta.Datum(body_of(message), "bytes"), trigger_metadata=told)


def _functions(wired: Wired) -> Mapping[str, Call]:
    """The subscribers' functions, by their names."""
    import azure.functions as func  # noqa: PLC0415 - of an extra

    from cosmos_outbox.functions.subscription import subscription_functions  # noqa: PLC0415

    app = func.FunctionApp()
    for each in with_canary(wired.service.subscribers, wired.settings.canary):
        app.register_functions(subscription_functions(wired.service, each))
    return {str(each.get_function_name()): each.get_user_function() for each in app.get_functions()}
