"""A program without an outbox: sends the same messages through the bare SDK, with no checks.

Run as a program, it reads the change feed and sends what it finds: ``python -m tools.benchmarks.bare``. With
``BARE_POLL_MS`` it goes on, with this pause between two readings; without it ends.
"""

import asyncio
import json
import os
from typing import Any

from azure.cosmos.aio import CosmosClient
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.servicebus.message import session_of
from cosmos_outbox.settings.transports import SESSIONS

BATCH = 100


def message(document: dict[str, Any]) -> ServiceBusMessage:
    """Returns the message that the relay creates from an event document."""
    data = document["data"]
    return ServiceBusMessage(
        json.dumps(data, separators=(",", ":")).encode(),
        content_type="application/json",
        subject=data["action"],
        message_id=data["id"],
        session_id=session_of(AggregateKey("contact", document["aggregateId"]), SESSIONS),
        correlation_id=data.get("correlationId"),
        application_properties={
            "cloudEvents_specversion": "1.0",
            "cloudEvents_id": data["id"],
            "cloudEvents_source": "/contacts",
            "cloudEvents_type": data["action"],
            "cloudEvents_subject": document["aggregateId"],
            "cloudEvents_time": data["createdAt"],
            "aggregateType": "contact",
            "sequence": data["sequence"],
            "traceparent": data.get("traceparent", ""),
        },
    )


async def send_batches(sender: ServiceBusSender, documents: list[dict[str, Any]]) -> None:
    """Sends a hundred messages at a time, one batch after the other."""
    for start in range(0, len(documents), BATCH):
        await sender.send_messages([message(each) for each in documents[start : start + BATCH]])


async def send_sessions(sender: ServiceBusSender, documents: list[dict[str, Any]], each: int) -> None:
    """Sends one session after the other, as a batch must that cannot mix sessions."""
    for start in range(0, len(documents), each):
        await sender.send_messages([message(one) for one in documents[start : start + each]])


async def _relay() -> None:
    async with (
        CosmosClient.from_connection_string(os.environ["COSMOS"]) as cosmos,
        ServiceBusClient.from_connection_string(os.environ["SERVICEBUS"]) as servicebus,
        servicebus.get_topic_sender(os.environ["SERVICEBUS_TOPIC"]) as sender,
    ):
        container = cosmos.get_database_client(os.environ["COSMOS_DATABASE"]).get_container_client("contacts")
        start: dict[str, Any] = {"start_time": "Beginning"}
        while True:
            feed = container.query_items_change_feed(**start, max_item_count=BATCH)
            await send_batches(sender, [item async for item in feed if item["type"] == "domainEvent"])
            if "BARE_POLL_MS" not in os.environ:
                break
            start = {"continuation": container.client_connection.last_response_headers["etag"]}
            await asyncio.sleep(float(os.environ["BARE_POLL_MS"]) / 1000)


if __name__ == "__main__":
    asyncio.run(_relay())
