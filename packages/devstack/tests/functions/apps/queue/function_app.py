"""A function on a queue. A message says how long it takes, and how many of its deliveries fail."""

import asyncio
import json

import azure.functions as func

from functions.apps.recording import record

app = func.FunctionApp()
_running = 0


@app.queue_trigger(arg_name="message", queue_name="%QUEUE%", connection="Storage")
async def work(message: func.QueueMessage) -> None:
    global _running  # noqa: PLW0603 - a function app's state is its module
    order = json.loads(message.get_body())
    _running += 1
    record(
        what="began",
        name=order["name"],
        running=_running,
        id=message.id,
        count=message.dequeue_count,
        inserted=message.insertion_time,
        expires=message.expiration_time,
        next_visible=message.time_next_visible,
        receipt=message.pop_receipt,
    )
    try:
        await asyncio.sleep(order.get("pause", 0))
    finally:
        _running -= 1
    if (message.dequeue_count or 0) <= order.get("fail", 0):
        raise ValueError("asked to fail")
    record(what="done", name=order["name"])
