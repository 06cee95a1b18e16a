"""Who does not hold the key, or has another time, gets nothing."""

import base64
import json
import time
from email.utils import formatdate
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from azure.cosmos import exceptions
from azure.cosmos.aio import CosmosClient

from cosmos.raw import KEY, Raw, authorization
from devstack.testing import Service, running

pytestmark = pytest.mark.long  # tests/contract goes through the same calls, quickly

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


def entra(seconds: float) -> dict[str, str]:
    """An unsigned token of Entra's form that is good for ``seconds`` from now."""
    claims = {"aud": "https://localhost", "nbf": int(time.time()) - 60, "exp": int(time.time() + seconds)}
    parts: tuple[Any, ...] = ({"typ": "JWT", "alg": "none"}, claims, {})
    token = ".".join(
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts
    )
    return {"authorization": quote(f"type=aad&ver=1.0&sig={token}", safe="")}


async def test_entra_tokens_are_taken_only_when_asked_for(raw: Raw, tmp_path: Path) -> None:
    service = Service("cosmos", tmp_path / "data", "--accept-entra")
    with running(service):
        async with Raw(service.address) as accepting:
            assert (await accepting.send("GET", "/dbs", headers=entra(60))).status == 200
            assert (await accepting.send("GET", "/dbs", headers=entra(-1))).status == 401
            assert (await accepting.send("GET", "/dbs")).status == 200

    assert (await raw.send("GET", "/dbs", headers=entra(60))).status == 401
