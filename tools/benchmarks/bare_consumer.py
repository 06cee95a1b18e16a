"""A program without an inbox: it stores a document for each message, and completes the message.

``python -m tools.benchmarks.bare_consumer``. No sessions, no order; a message that comes again is stored again.
"""

import asyncio
import json
import os
from datetime import UTC, datetime

from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver

BATCH = 32
"""The number of messages at once, equal to the number of sessions that the worker holds."""


async def _apply(
    receiver: ServiceBusReceiver, entries: ContainerProxy, message: ServiceBusReceivedMessage
) -> None:
    data = json.loads(b"".join(message.body))
    name = data.get("name") or data["contact"]["name"]
    now = datetime.now(UTC)
    item = {
        "id": data["contactId"],
        "partitionKey": data["contactId"],
        "type": "entry",
        "lastSequence": data["sequence"],
        "data": name,
        "appliedAt": now.isoformat(),
        "lateSeconds": (now - datetime.fromisoformat(data["createdAt"])).total_seconds(),
    }
    await entries.upsert_item(item)
    await receiver.complete_message(message)


async def _main() -> None:
    async with (
        CosmosClient.from_connection_string(os.environ["COSMOS"]) as cosmos,
        ServiceBusClient.from_connection_string(os.environ["SERVICEBUS"]) as servicebus,
        servicebus.get_subscription_receiver(
            os.environ["SERVICEBUS_TOPIC"], os.environ["BARE_SUBSCRIPTION"]
        ) as receiver,
    ):
        entries = cosmos.get_database_client(os.environ["COSMOS_DATABASE"]).get_container_client("directory")
        while True:
            messages = await receiver.receive_messages(BATCH, max_wait_time=1)
            await asyncio.gather(*(_apply(receiver, entries, message) for message in messages))


if __name__ == "__main__":
    asyncio.run(_main())
