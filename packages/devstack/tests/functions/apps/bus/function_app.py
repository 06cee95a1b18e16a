"""Functions on Service Bus and on a timer; which of them there are, BINDINGS says.

A message's properties say how long its function takes (``pause``) and how many deliveries fail (``fail``).
"""

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any, List  # noqa: UP035 - the worker takes no list[...]

import azure.functions as func

from functions.apps.recording import record

app = func.FunctionApp()
_wanted = os.environ["BINDINGS"].split()
_running = 0


def _seen(message: func.ServiceBusMessage) -> dict[str, Any]:
    names = (
        "message_id",
        "session_id",
        "subject",
        "content_type",
        "correlation_id",
        "delivery_count",
        "sequence_number",
        "application_properties",
        "lock_token",
        "enqueued_time_utc",
        "partition_key",
        "reply_to",
        "to",
    )
    return {"body": message.get_body().decode()} | {name: getattr(message, name) for name in names}


async def _handle(what: str, *messages: func.ServiceBusMessage) -> None:
    global _running  # noqa: PLW0603 - a function app's state is its module
    orders = [message.application_properties for message in messages]
    _running += 1
    try:
        record(what=what, messages=[_seen(message) for message in messages], running=_running)
        await asyncio.sleep(max(order.get("pause", 0) for order in orders))
        record(what=f"{what} done", ids=[message.message_id for message in messages])
    finally:
        _running -= 1
    for message, order in zip(messages, orders, strict=True):
        if (message.delivery_count or 0) <= order.get("fail", 0):
            raise ValueError("asked to fail")


if "session" in _wanted:

    @app.service_bus_topic_trigger(
        arg_name="message",
        topic_name="%TOPIC%",
        subscription_name="%SUBSCRIPTION%",
        connection="SERVICEBUS",
        is_sessions_enabled=True,
    )
    async def session(message: func.ServiceBusMessage) -> None:
        await _handle("session", message)


def _with_retry(function: Any) -> Any:
    if "retry" not in _wanted:
        return function
    decorate: Callable[[Any], Any] = app.retry(
        strategy="fixed_delay", max_retry_count="1", delay_interval="00:00:00"
    )
    return decorate(function)


if "one" in _wanted:

    @_with_retry
    @app.service_bus_queue_trigger(arg_name="message", queue_name="%ONE%", connection="SERVICEBUS")
    async def one(message: func.ServiceBusMessage) -> None:
        await _handle("one", message)


if "many" in _wanted:

    @app.service_bus_queue_trigger(
        arg_name="messages", queue_name="%MANY%", connection="SERVICEBUS", cardinality=func.Cardinality.MANY
    )
    async def many(messages: List[func.ServiceBusMessage]) -> None:  # noqa: UP006 - as above
        await _handle("many", *messages)


if "timer" in _wanted:
    schedule = os.environ.get("TIMER_SCHEDULE", "* * * * * *")

    @app.timer_trigger(arg_name="timer", schedule=schedule, run_on_startup=True)
    def timer(timer: func.TimerRequest) -> None:
        record(what="timer", past_due=timer.past_due)
        time.sleep(float(os.environ.get("TIMER_SECONDS", "0")))
