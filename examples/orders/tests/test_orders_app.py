"""The order service end to end, on a local Azure: with its own settings, devstack.toml and topic."""

from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import pytest

from cosmos_outbox.testing import LocalAzure, eventually, message

APP = Path(__file__).parents[1]
TOPIC = "order-events"
ORDER = {"customer": "Contoso", "lines": [{"sku": "A-1", "quantity": 2}]}
LINE = {"sku": "B-2", "quantity": 1}


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAzure]:
    """What ``devstack.toml`` makes, with the function app on it."""
    with LocalAzure(
        tmp_path_factory.mktemp("orders"), settings={"PYTHONPATH": str(APP.parents[1])}
    ) as started:
        started.make(APP)
        started.run(APP)
        yield started


@pytest.fixture
async def api(azure: LocalAzure) -> AsyncIterator[aiohttp.ClientSession]:
    base = azure.functions.address
    async with aiohttp.ClientSession(base, timeout=aiohttp.ClientTimeout(30)) as session:
        yield session


async def place(api: aiohttp.ClientSession) -> dict[str, Any]:
    async with api.post("/api/orders", json=ORDER) as answer:
        assert answer.status == 201, await answer.text()
        order: dict[str, Any] = await answer.json()
        return order


async def test_an_order_from_its_placing_to_its_shipping(
    azure: LocalAzure, api: aiohttp.ClientSession
) -> None:
    order = await place(api)
    assert (order["customer"], order["lines"], order["shippedAt"]) == ("Contoso", ORDER["lines"], None)
    where = f"/api/orders/{order['id']}"
    async with api.post(f"{where}/lines", json=LINE) as answer:
        assert (answer.status, (await answer.json())["lines"]) == (200, [*ORDER["lines"], LINE])
        etag = answer.headers["ETag"]
    async with api.post(f"{where}/ship", headers={"If-Match": '"an-older-one"'}) as answer:
        assert answer.status == 412
    async with api.post(f"{where}/ship", headers={"If-Match": etag}) as answer:
        assert answer.status == 200
    async with api.post(f"{where}/lines", json=LINE) as answer:
        assert (answer.status, "was shipped" in (await answer.json())["detail"]) == (409, True)
    async with api.get(where) as answer:
        assert (await answer.json())["shippedAt"] is not None

    messages = await azure.receive("order-watch", 3, of=("order", order["id"]), topic=TOPIC)

    bodies = [each.data for each in messages]
    assert [(body["action"], body["sequence"]) for body in bodies] == [
        ("OrderPlacedEvent", 1), ("OrderLineAddedEvent", 2), ("OrderShippedEvent", 3)
    ]  # fmt: skip
    assert bodies[0]["lines"] == ORDER["lines"]
    assert bodies[1]["line"] == LINE
    assert {body["orderId"] for body in bodies} == {order["id"]}
    shipping = f"e-mail {bodies[2]['id']}: order {order['id']} is on its way"
    await eventually(lambda: shipping in azure.functions.log.read_text())
    assert azure.functions.log.read_text().count(f"order {order['id']} is on its way") == 1
    properties = messages[0].properties
    assert (properties["aggregateType"], properties["cloudEvents_source"]) == ("order", "/orders")


IMPOSSIBLE: list[tuple[str, str, dict[str, Any] | None, int]] = [
    ("POST", "orders", {"customer": "Contoso", "lines": []}, 400),
    ("POST", "orders", ORDER | {"lines": [LINE | {"quantity": 0}]}, 400),
    ("POST", "orders", ORDER | {"total": 5}, 400),
    ("GET", "orders/7", None, 404),
    ("GET", "contacts", None, 404),
    ("DELETE", "orders/7", None, 405),
    ("TRACE", "orders/7", None, 405),
    ("POST", "stuck/7/retry", None, 404),
    ("GET", "events/order/7", None, 404),
    ("GET", "events/contact/7", None, 404),
    ("GET", "events/order/7?before=0", None, 400),
]


async def test_an_impossible_call_is_refused(api: aiohttp.ClientSession) -> None:
    for method, path, body, status in IMPOSSIBLE:
        async with api.request(method, f"/api/{path}", json=body) as answer:
            assert answer.status == status, (method, path)
            assert answer.content_type == "application/problem+json", (method, path)
            if status == 405:
                assert answer.headers["Allow"] == "GET, HEAD", (method, path)


async def board(api: aiohttp.ClientSession, **query: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    parameters = {"pageSize": "100"} | query
    while True:
        async with api.get("/api/board", params=parameters) as answer:
            assert answer.status == 200, await answer.text()
            page = await answer.json()
        found |= {each.pop("orderId"): each for each in page["items"]}
        if page["continuationToken"] is None:
            return found
        parameters["continuationToken"] = page["continuationToken"]


async def test_the_board_follows_the_orders(api: aiohttp.ClientSession) -> None:
    orders = [(await place(api))["id"] for _ in range(3)]
    async with api.post(f"/api/orders/{orders[0]}/lines", json=LINE) as answer:
        assert answer.status == 200
    async with api.post(f"/api/orders/{orders[0]}/ship") as answer:
        assert answer.status == 200
    shipped = {"customer": "Contoso", "status": "shipped", "total": 3, "lastSequence": 3}
    waiting = {"customer": "Contoso", "status": "placed", "total": 2, "lastSequence": 1}

    async def is_right() -> bool:
        found = await board(api)
        return [found.get(order) for order in orders] == [shipped, waiting, waiting]

    await eventually(is_right)
    assert orders[0] in await board(api, status="shipped", pageSize="2")
    assert {orders[1], orders[2]} <= (await board(api, status="placed", pageSize="2")).keys() - {orders[0]}
    async with api.get("/api/board", params={"status": "lost"}) as answer:
        assert answer.status == 400
    async with api.get("/api/subscribers") as answer:
        assert [each["setAside"] for each in (await answer.json())["items"]] == [
            {"waiting": 0, "refused": 0}
        ] * 3


async def test_each_subscriber_has_its_own_records(azure: LocalAzure, api: aiohttp.ClientSession) -> None:
    await send(azure, str(uuid4()), 0)  # no event has this sequence

    async def both_refused() -> dict[tuple[str, str], str] | None:
        async with api.get("/api/stuck?pageSize=1") as answer:
            assert answer.status == 200, await answer.text()
            page = await answer.json()
        found = page["items"]
        while page["continuationToken"]:
            async with api.get(
                "/api/stuck", params={"continuationToken": page["continuationToken"]}
            ) as answer:
                page = await answer.json()
            found += page["items"]
        refused = {
            (each["kind"], each["subscriber"]): each["id"] for each in found if each["state"] == "refused"
        }
        return refused if len(refused) == 2 else None

    found = await eventually(both_refused)
    assert found is not None
    assert found.keys() == {("message", "order-board"), ("effect", "order-mails")}
    async with api.get("/api/subscribers") as answer:
        [mails] = [each for each in (await answer.json())["items"] if each["name"] == "order-mails"]
    assert mails == {
        "name": "order-mails", "setAside": {"waiting": 0, "refused": 1}, "lastWalk": None, "walk": None
    }  # fmt: skip
    for record in found.values():
        async with api.post(f"/api/stuck/{record}/discard", json={"reason": "a test"}) as answer:
            assert answer.status == 204, await answer.text()


async def test_each_gift_is_one_line_with_its_cause(azure: LocalAzure, api: aiohttp.ClientSession) -> None:
    order = await place(api)
    gift = {"orderId": order["id"], "line": LINE}
    for _ in range(2):
        await azure.cosmos.faults.add("drop-after-commit", count=1, operation="batch", container="orders")
        async with api.post("/api/gifts", json=gift) as answer:
            assert answer.status == 201, await answer.text()
            given = (await answer.json())["id"]

    async def lines() -> list[dict[str, Any]]:
        async with api.get(f"/api/orders/{order['id']}") as answer:
            found: list[dict[str, Any]] = (await answer.json())["lines"]
        return found

    async def both_came() -> bool:
        return len(await lines()) == 3

    await eventually(both_came)
    [event] = await azure.receive("order-watch", 1, of=("gift", given), topic=TOPIC)
    await azure.send(event, topic=TOPIC, message_id="published-again")
    recorded = f"event {event.id} of gift {given} is recorded as applied"
    await eventually(lambda: recorded in azure.functions.log.read_text())
    assert await lines() == [*ORDER["lines"], LINE, LINE]
    events = await azure.receive("order-watch", 3, of=("order", order["id"]), topic=TOPIC)
    assert [each.data["action"] for each in events[1:]] == ["OrderLineAddedEvent"] * 2
    assert event.id in {each.data["causationId"] for each in events[1:]}


async def send(azure: LocalAzure, order_id: str, sequence: int) -> str:
    """A shipping whose events before it never come."""
    shipped = message(
        ("order", order_id), "OrderShippedEvent", sequence, data={"shippedAt": "2026-03-01T12:00:00Z"}
    )
    await azure.send(shipped, topic=TOPIC)
    return shipped.id


async def test_each_email_is_sent_once_though_its_message_comes_again(azure: LocalAzure) -> None:
    order_id = str(uuid4())

    def sent(event_id: str) -> int:
        return azure.functions.log.read_text().count(f"e-mail {event_id}: order {order_id} is on its way")

    for place in (3, 5):
        event_id = await send(azure, order_id, place)
        await eventually(partial(sent, event_id))
        assert sent(event_id) == 1


@pytest.mark.long
async def test_the_operations_page_is_there_and_its_calls_speak_of_orders(api: aiohttp.ClientSession) -> None:
    async with api.get("/api/operations") as answer:
        assert (answer.status, answer.content_type) == (200, "text/html")
    async with api.get("/api/instance") as answer:
        instance = await answer.json()
    assert instance["aggregates"] == ["order", "gift"]
    async with api.get("/api/dependencies") as answer:
        assert [each["ok"] for each in (await answer.json())["items"]] == [True, True]
    order = await place(api)
    await (await api.post(f"/api/orders/{order['id']}/lines", json=LINE)).read()

    async def both_forwarded() -> bool:
        async with api.get(f"/api/events/order/{order['id']}") as answer:
            assert answer.status == 200
            events = (await answer.json())["items"]
        assert [each["sequence"] for each in events] == [2, 1]
        return {each["state"] for each in events} == {"sent"}

    await eventually(both_forwarded)
