"""The service without a socket: the same clock and chance give the same answers, to the byte."""

import json
import random
from email.utils import formatdate

import pytest
from aiohttp import hdrs
from multidict import CIMultiDict

from cosmos.raw import authorization
from devstack.cosmos.in_memory import CosmosInMemory, Fault, in_memory

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


KEY = {"id": "things", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}}


def _story(seed: int) -> list[tuple[int, str]]:
    with in_memory(clock=lambda: NOW, chance=random.Random(seed), partitions=1) as account:
        answers = [
            _ask(account, "POST", "", "dbs", {"id": "shop"}),
            _ask(account, "POST", "dbs/shop", "colls", KEY),
            _ask(account, "POST", "dbs/shop/colls/things", "docs", {"id": "1", "pk": "a"}),
            _ask(account, "GET", "dbs/shop/colls/things/docs/1", "docs"),
        ]
        assert account.partitions("shop", "things") == [0]
        account.split("shop", "things", 0)
        assert account.partitions("shop", "things") == [1, 2]
        return [*answers, _ask(account, "GET", "dbs/shop/colls/things/docs/1", "docs")]


def test_the_answers_depend_on_the_clock_and_the_chance_alone() -> None:
    assert [status for status, _ in _story(1)] == [201, 201, 201, 200, 200]
    assert _story(1) == _story(1)
    assert _story(1) != _story(2)


def test_an_account_begins_with_all_that_another_had_and_goes_its_own_way() -> None:
    chance = random.Random(1)
    things, one = "dbs/shop/colls/things", "dbs/shop/colls/things/docs/1"
    with (
        in_memory(clock=lambda: NOW, chance=chance) as first,
        in_memory(clock=lambda: NOW, chance=chance) as second,
    ):
        _ask(first, "POST", "", "dbs", {"id": "shop"})
        _ask(first, "POST", "dbs/shop", "colls", KEY)
        _ask(first, "POST", things, "docs", {"id": "1", "pk": "a"})
        assert (first.is_empty, second.is_empty) == (False, True)
        second.begin_with(first.content())
        assert (_ask(second, "GET", one, "docs")[0], _ask(second, "DELETE", one, "docs")[0]) == (200, 204)
        assert (_ask(second, "GET", one, "docs")[0], _ask(first, "GET", one, "docs")[0]) == (404, 200)
        second.faults.add(Fault(kind="lag", versions=1))
        assert _ask(second, "GET", one, "docs")[0] == 200  # its replicas know what was there before
        with pytest.raises(ValueError, match="only an empty one"):
            second.begin_with(first.content())
