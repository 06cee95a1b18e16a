"""The service without a socket: the same clock and chance give the same answers, to the byte."""

import json
import random
from email.utils import formatdate

from aiohttp import hdrs
from multidict import CIMultiDict

from cosmos.raw import authorization
from devstack.cosmos.in_memory import CosmosInMemory, in_memory

NOW = 1_700_000_000.0


def _ask(account: CosmosInMemory, method: str, link: str, kind: str, body: object = None) -> tuple[int, str]:
    date = formatdate(NOW, usegmt=True)
    path = f"{link}/{kind}" if method == "POST" else link
    headers = CIMultiDict({"x-ms-date": date, "authorization": authorization(method, kind, link, date)})
    if kind == "docs":
        headers["x-ms-documentdb-partitionkey"] = '["a"]'
    answer, sent = account.serve(method, f"/{path}", headers, json.dumps(body or {}).encode())
    assert sent[hdrs.DATE] == date
    return answer.status, f"{answer.body}{sorted(sent.items())}"


def _story(seed: int) -> list[tuple[int, str]]:
    with in_memory(clock=lambda: NOW, chance=random.Random(seed), partitions=1) as account:
        key = {"id": "things", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}}
        told = [
            _ask(account, "POST", "", "dbs", {"id": "shop"}),
            _ask(account, "POST", "dbs/shop", "colls", key),
            _ask(account, "POST", "dbs/shop/colls/things", "docs", {"id": "1", "pk": "a"}),
            _ask(account, "GET", "dbs/shop/colls/things/docs/1", "docs"),
        ]
        assert account.partitions("shop", "things") == [0]
        account.split("shop", "things", 0)
        assert account.partitions("shop", "things") == [1, 2]
        return [*told, _ask(account, "GET", "dbs/shop/colls/things/docs/1", "docs")]


def test_the_answers_depend_on_the_clock_and_the_chance_alone() -> None:
    assert [status for status, _ in _story(1)] == [201, 201, 201, 200, 200]
    assert _story(1) == _story(1)
    assert _story(1) != _story(2)
