"""Who does not hold the key, or has another time, gets nothing."""

import time
from email.utils import formatdate
from urllib.parse import quote

import pytest
from azure.cosmos import exceptions
from azure.cosmos.aio import CosmosClient

from tests.devstack.cosmos.raw import KEY, Raw, authorization
from tests.support.processes import Service

WRONG_KEY = KEY.replace("C2y6", "D2y6")


async def test_a_wrong_key_is_401(cosmos_server: Service) -> None:
    client = CosmosClient(cosmos_server.address, WRONG_KEY)
    try:
        with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
            await client.__aenter__()  # "async with" would not close a client that cannot enter
    finally:
        await client.close()

    assert refused.value.status_code == 401


def signed(seconds: float, link: str = "", method: str = "GET") -> dict[str, str]:
    date = formatdate(time.time() + seconds, usegmt=True)
    return {"x-ms-date": date, "authorization": authorization(method, "dbs", link, date)}


@pytest.mark.parametrize(
    ("seconds", "status"), [(0, 200), (-800, 200), (800, 200), (-1000, 403), (1000, 403)]
)
async def test_a_clock_may_be_fifteen_minutes_off(raw: Raw, seconds: float, status: int) -> None:
    reply = await raw.send("GET", "/dbs", headers=signed(seconds))

    assert reply.status == status


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": ""},
        {"authorization": quote("type=master&ver=2.0&sig=x")},
        {"authorization": quote("type=resource&ver=1.0&sig=x")},
        {"authorization": quote("type=aad&ver=1.0&sig=a.b.c")},
        {"authorization": "%%%"},
        {"x-ms-date": "nonsense"},
        signed(0, link="dbs/other"),
        signed(0, method="DELETE"),
    ],
)
async def test_a_signature_is_good_for_one_request_only(raw: Raw, headers: dict[str, str]) -> None:
    reply = await raw.send("GET", "/dbs", headers=headers)

    assert (reply.status, reply.body["code"]) == (401, "Unauthorized")
