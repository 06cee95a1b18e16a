"""Over queues, as functions: a trigger brings each message to its subscriber, and what is no event holds up nothing."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from azure.storage.queue.aio import QueueServiceClient

from cosmos_outbox.testing import LocalAzure, eventually
from tests.support.paths import ROOT

pytestmark = [pytest.mark.own_stack, pytest.mark.long, pytest.mark.timeout(300)]

ORDERS = ROOT / "examples" / "orders"
QUEUES = ("order-board", "order-mails", "order-gifts")


async def on_board(api: aiohttp.ClientSession, order: str) -> dict[str, Any]:
    with suppress(aiohttp.ClientError, TimeoutError):
        async with api.get("/api/board") as answer:
            items = (await answer.json())["items"] if answer.status == 200 else []
            return next((each for each in items if each["orderId"] == order), {})
    return {}


async def test_functions_receive_from_queues(tmp_path: Path) -> None:
    with LocalAzure(tmp_path, settings={"PYTHONPATH": str(ROOT), "TRANSPORT": "storagequeue"}) as azure:
        azure.make(ORDERS)  # the queues too
        async with QueueServiceClient.from_connection_string(azure.settings["STORAGEQUEUE"]) as queues:
            azure.run(ORDERS)
            async with aiohttp.ClientSession(
                azure.functions.address, timeout=aiohttp.ClientTimeout(30)
            ) as api:
                order = {"customer": "Contoso", "lines": [{"sku": "A-1", "quantity": 2}]}
                async with api.post("/api/orders", json=order) as answer:
                    assert answer.status == 201, await answer.text()
                    made = (await answer.json())["id"]
                await eventually(lambda: on_board(api, made), within=60)
                async with api.post(f"/api/orders/{made}/ship") as answer:
                    assert answer.status == 200, await answer.text()

                async def is_shipped() -> bool:
                    return (await on_board(api, made)).get("lastSequence") == 2

                await eventually(is_shipped, within=60)
                await eventually(
                    lambda: f"order {made} is on its way" in azure.functions.log.read_text(), within=60
                )

                async def is_empty() -> bool:
                    left = [await queues.get_queue_client(name).get_queue_properties() for name in QUEUES]
                    return sum(each.approximate_message_count or 0 for each in left) == 0

                await eventually(is_empty, within=60)
