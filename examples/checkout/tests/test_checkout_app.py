"""The process end to end, on a local Azure: in time, too late, and while everything is killed."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import aiohttp
import pytest

from cosmos_outbox import Aggregate, Origin, running
from cosmos_outbox.testing import LocalAzure, eventually
from examples.checkout.payment import payment_of
from examples.checkout.service import service
from examples.checkout.tests.at_rest import SUPPLY, agree

APP = Path(__file__).parents[1]
PAY_WITHIN_SECONDS = 15
ORIGIN = Origin("test")


@pytest.fixture
def azure(tmp_path: Path) -> Iterator[LocalAzure]:
    """What ``devstack.toml`` makes, with the function app on it."""
    settings = {"PYTHONPATH": str(APP.parents[1]), "PAY_WITHIN_SECONDS": str(PAY_WITHIN_SECONDS)}
    with LocalAzure(tmp_path, settings=settings) as started:
        started.make(APP)
        started.run(APP)
        yield started


@pytest.fixture
async def api(azure: LocalAzure) -> AsyncIterator[aiohttp.ClientSession]:
    base = azure.functions.address
    async with aiohttp.ClientSession(base, timeout=aiohttp.ClientTimeout(30)) as session:
        yield session


async def post(api: aiohttp.ClientSession, path: str, body: object = None, **headers: str) -> dict[str, Any]:
    async with api.post(f"/api/{path}", json=body, headers=headers) as answer:
        assert answer.status < 300, await answer.text()
        found: dict[str, Any] = await answer.json()
        return found


async def insist(api: aiohttp.ClientSession, path: str, body: object = None) -> dict[str, Any]:
    """Ask with one key, until there is an answer."""
    key, found = str(uuid4()), list[dict[str, Any]]()

    async def asked() -> bool:
        with suppress(aiohttp.ClientError, TimeoutError, AssertionError):
            found.append(await post(api, path, body, **{"Idempotency-Key": key}))
        return bool(found)

    await eventually(asked, within=60)
    return found[0]


async def status(api: aiohttp.ClientSession, path: str) -> str | None:
    with suppress(aiohttp.ClientError, TimeoutError):
        async with api.get(f"/api/{path}") as answer:
            return (await answer.json()).get("status") if answer.status == 200 else None
    return None


async def is_in(api: aiohttp.ClientSession, path: str, *statuses: str) -> bool:
    return await status(api, path) in statuses


@pytest.mark.long  # the simulation has both, and test_checkout each step
async def test_paid_in_time_and_not_paid(azure: LocalAzure, api: aiohttp.ClientSession) -> None:
    article = (await post(api, "articles", {"available": SUPPLY}))["id"]
    wanted = {"articleId": article, "quantity": 2, "amount": 100}
    paid, late = [(await post(api, "orders", wanted))["id"] for _ in range(2)]
    for order in (paid, late):
        await eventually(partial(is_in, api, f"orders/{order}", "reserved"))
        await eventually(partial(is_in, api, f"payments/{payment_of(UUID(order))}", "requested"))
    await post(api, f"payments/{payment_of(UUID(paid))}/settle")
    await eventually(lambda: is_in(api, f"orders/{paid}", "paid"))
    await eventually(lambda: is_in(api, f"orders/{late}", "cancelled"), within=60)
    await eventually(lambda: is_in(api, f"payments/{payment_of(UUID(late))}", "void"))
    events = await azure.receive("checkout-watch", 3, of=("order", late), topic="checkout-events")
    assert [each.data["action"] for each in events] == ["OrderPlaced", "OrderReserved", "OrderCancelled"]
    assert (events[2].data["reason"], events[2].data["correlationId"][:4]) == ("not paid in time", "due-")

    async def is_left() -> bool:
        async with api.get(f"/api/articles/{article}") as answer:
            found = await answer.json()
        return (found["available"], found["held"], found["sold"]) == (SUPPLY - 2, {}, 2)

    await eventually(is_left)
    async with api.post(f"/api/payments/{payment_of(UUID(late))}/settle") as answer:
        assert (answer.status, "is void" in (await answer.json())["detail"]) == (409, True)


@pytest.mark.long
async def test_while_everything_is_killed_money_pieces_and_orders_agree(
    azure: LocalAzure, api: aiohttp.ClientSession
) -> None:
    articles = [(await insist(api, "articles", {"available": SUPPLY}))["id"] for _ in range(2)]
    orders: list[str] = []

    async def customer() -> None:
        for _ in range(3):
            wanted = {"articleId": random.choice(articles), "quantity": random.randint(1, 3), "amount": 9}
            order = (await insist(api, "orders", wanted))["id"]
            orders.append(order)
            payment = f"payments/{payment_of(UUID(order))}"
            await asyncio.sleep(random.uniform(0, PAY_WITHIN_SECONDS / 3))
            if await status(api, payment) == "requested" and random.random() < 0.7:
                with suppress(aiohttp.ClientError, TimeoutError, AssertionError):
                    await post(api, f"{payment}/settle")

    async def nemesis() -> None:
        for victim in random.sample([azure.functions, azure.functions, azure.cosmos, azure.servicebus], 4):
            await asyncio.sleep(random.uniform(1, 4))
            await asyncio.to_thread(victim.restart)

    await asyncio.gather(nemesis(), *(customer() for _ in range(4)))
    assert len(orders) == 12

    async def wrong() -> list[str]:
        found: list[Aggregate[Any]] = []
        for kind in service.aggregates:
            found += (await service().aggregates.page(kind, 100, None, ORIGIN)).items
        open_orders = [f"{each.key} is {each.state.status}" for each in found if each.due is not None]
        return [*open_orders, *agree(found)]

    async def is_at_rest() -> bool:
        return not await wrong()

    async with running(service, relay=False, subscribers=False, environment=azure.settings):
        try:
            await eventually(is_at_rest, within=120)
        except AssertionError:
            raise AssertionError(await wrong()) from None
