"""Random writes, batches, deletes, expiries and splits against a model that a reader can check in a minute.

The requests go through the whole server but its socket, so that time can be set; the sockets are other tests' business.
"""

import contextlib
import itertools
import json
import shutil
import tempfile
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from multidict import CIMultiDict

from cosmos.raw import authorization
from devstack.cosmos.dispatch import Dispatcher
from devstack.cosmos.resources import partitions
from devstack.cosmos.resources.service import Options, Service
from devstack.cosmos.storage import ttl
from devstack.cosmos.storage.catalogue import Catalogue
from devstack.cosmos.storage.store import Store
from devstack.cosmos.wire.auth import Authorizer
from devstack.cosmos.wire.faults import Faults

ITEMS = "dbs/d/colls/c/docs"
KEYS = st.sampled_from(["a", "b", "c", "d"])
IDS = st.sampled_from(["1", "2", "3"])
TTLS = st.sampled_from([None, None, -1, 1, 3])
WHICH_ETAG = st.sampled_from(["none", "none", "current", "stale"])
OPERATIONS = st.sampled_from(["Create", "Upsert", "Upsert", "Replace", "Delete", "Read"])
STEPS = st.tuples(
    st.sampled_from(["Upsert"] * 6 + ["Create", "Replace", "Delete", "Read"]),
    IDS,
    st.sampled_from(["none", "none", "none", "current", "stale"]),
    TTLS,
)
"""Mostly such that a batch of several succeeds."""


@dataclass(frozen=True)
class Known:
    """What the model says of an item: ``write`` counts the transactions of the whole test."""

    etag: str
    n: int
    write: int
    dies: int | None
    """The first second in which it is gone."""


Model = dict[tuple[str, str], Known]


class CosmosMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="cosmos-model-"))
        self.resources = contextlib.ExitStack()
        self.store = self.resources.enter_context(Store.opened(self.folder))
        self.time = 1_000_000
        self.service = Service(
            self.store, Catalogue(self.store), Options(partitions=2), clock=lambda: self.time
        )
        self.dispatcher = Dispatcher(self.service, Authorizer(), Faults())
        self.model: Model = {}
        self.writes = itertools.count(1)
        self.numbers = itertools.count(1)
        self.stale = '"stale"'
        self.reader: dict[str, str] = {}
        self.read_up_to = 0

    @initialize()
    def make_container(self) -> None:
        self.send("POST", "dbs", {"id": "d"})
        body = {"id": "c", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}, "defaultTtl": -1}
        assert self.send("POST", "dbs/d/colls", body)[0] == 201

    def teardown(self) -> None:
        self.resources.close()
        shutil.rmtree(self.folder)

    # -- the wire

    def send(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, Any, dict[str, str]]:
        parts = path.split("/")
        is_feed = len(parts) % 2 == 1
        kind, link = (parts[-1], "/".join(parts[:-1])) if is_feed else (parts[-2], path)
        date = formatdate(usegmt=True)
        sent = CIMultiDict({name.replace("_", "-"): value for name, value in headers.items()})
        sent.update({"x-ms-date": date, "authorization": authorization(method, kind, link, date)})
        answer = self.dispatcher.serve(
            method, f"/{path}", sent, b"" if body is None else json.dumps(body).encode()
        )
        return answer.status, None if answer.body is None else json.loads(answer.body), answer.headers

    # -- the model

    def visible(self) -> Model:
        return {
            key: known for key, known in self.model.items() if known.dies is None or self.time < known.dies
        }

    def etag(self, which: str, key: tuple[str, str]) -> str | None:
        known = self.visible().get(key)
        if which == "none":
            return None
        return known.etag if which == "current" and known else self.stale

    def expected(self, operation: str, key: tuple[str, str], etag: str | None, model: Model) -> int:
        known = model.get(key)
        if operation == "Create":
            return 201 if known is None else 409
        if operation == "Upsert":
            if etag is not None and (known is None or known.etag != etag):
                return 412
            return 201 if known is None else 200
        if known is None:
            return 404
        if operation != "Read" and etag is not None and known.etag != etag:
            return 412
        return 204 if operation == "Delete" else 200

    def remember(self, model: Model, key: tuple[str, str], operation: str, result: Any, write: int) -> None:
        if operation == "Read":
            return
        if operation == "Delete":
            del model[key]
            return
        seconds = result.get("ttl", -1)
        dies = None if seconds == -1 else self.time + seconds + 1
        model[key] = Known(result["_etag"], result["n"], write, dies)

    def document(self, key: tuple[str, str], seconds: int | None) -> dict[str, Any]:
        document: dict[str, Any] = {"id": key[1], "pk": key[0], "n": next(self.numbers)}
        return document if seconds is None else {**document, "ttl": seconds}

    # -- what happens

    @rule(pk=KEYS, item_id=IDS, operation=OPERATIONS, which=WHICH_ETAG, seconds=TTLS)
    def any_item(self, pk: str, item_id: str, operation: str, which: str, seconds: int | None) -> None:
        self.one_item(pk, item_id, operation, which, seconds)

    def one_item(self, pk: str, item_id: str, operation: str, which: str, seconds: int | None) -> None:
        key = (pk, item_id)
        etag = None if operation in ("Create", "Read") else self.etag(which, key)
        headers = {"x_ms_documentdb_partitionkey": json.dumps([pk])}
        if etag is not None:
            headers["If_Match"] = etag
        if operation == "Upsert":
            headers["x_ms_documentdb_is_upsert"] = "True"
        method = {"Create": "POST", "Upsert": "POST", "Replace": "PUT", "Delete": "DELETE", "Read": "GET"}[
            operation
        ]
        path = ITEMS if method == "POST" else f"{ITEMS}/{item_id}"
        body = None if operation in ("Delete", "Read") else self.document(key, seconds)
        model = self.visible()

        status, result, _ = self.send(method, path, body, **headers)

        assert status == self.expected(operation, key, etag, model), (operation, result)
        if status < 300:
            self.remember(model, key, operation, result, next(self.writes))
            self.model = model

    @rule(writes=st.lists(st.tuples(KEYS, IDS, TTLS), min_size=4, max_size=8))
    def many_items(self, writes: list[tuple[str, str, int | None]]) -> None:
        """There is always something to change, to expire and to read."""
        for pk, item_id, seconds in writes:
            self.one_item(pk, item_id, "Upsert", "none", seconds)

    @rule(
        pk=KEYS,
        steps=st.lists(STEPS, min_size=1, max_size=4),
    )
    def a_batch(self, pk: str, steps: list[tuple[str, str, str, int | None]]) -> None:
        operations: list[dict[str, Any]] = []
        for operation, item_id, which, seconds in steps:
            key = (pk, item_id)
            body: dict[str, Any] = {"operationType": operation, "id": item_id}
            if operation not in ("Delete", "Read"):
                body["resourceBody"] = self.document(key, seconds)
            etag = None if operation in ("Create", "Read") else self.etag(which, key)
            operations.append(body if etag is None else {**body, "ifMatch": etag})
        headers = {
            "x_ms_documentdb_partitionkey": json.dumps([pk]),
            "x_ms_cosmos_is_batch_request": "True",
            "x_ms_cosmos_batch_atomic": "True",
        }

        status, results, _ = self.send("POST", ITEMS, operations, **headers)

        model, write = self.visible(), next(self.writes)
        for index, (step, result) in enumerate(zip(operations, results, strict=True)):
            key, operation = (pk, step["id"]), step["operationType"]
            wanted = self.expected(operation, key, step.get("ifMatch"), model)
            if wanted >= 400:
                assert status == 207
                assert [one["statusCode"] for one in results] == [
                    wanted if place == index else 424 for place in range(len(operations))
                ]
                return
            if status == 200:
                assert result["statusCode"] == wanted
                self.remember(model, key, operation, result.get("resourceBody"), write)
            else:
                self.assume_done(model, key, operation, write)
        assert status == 200
        self.model = model

    def assume_done(self, model: Model, key: tuple[str, str], operation: str, write: int) -> None:
        """Follow a batch up to the operation that fails: only who is there counts, and that its ETag is a new one."""
        if operation == "Delete":
            del model[key]
        elif operation != "Read":
            model[key] = Known("an ETag of the batch itself", 0, write, None)

    @rule(seconds=st.integers(1, 3))
    def time_passes(self, seconds: int) -> None:
        self.time += seconds
        self.model = self.visible()

    @rule()
    def expired_rows_are_purged(self) -> None:
        ttl.purge(self.store.connection, self.service.catalogue.container("d", "c"), self.time)

    @rule(index=st.integers(0, 7))
    def a_partition_splits(self, index: int) -> None:
        container = self.service.catalogue.container("d", "c")
        if len(container.ranges) < 6:
            partitions.split(self.service, container, container.ranges[index % len(container.ranges)].id)

    # -- what must hold

    @invariant()
    def reads_and_queries_agree_with_the_model(self) -> None:
        if not self.service.catalogue.databases():
            return
        found: list[Any] = []
        more: dict[str, str] = {}
        while True:
            _, body, headers = self.send("GET", ITEMS, **more)
            found += body["Documents"]
            if "x-ms-continuation" not in headers:
                break
            more = {"x_ms_continuation": headers["x-ms-continuation"]}
        assert sorted((item["pk"], item["id"], item["n"]) for item in found) == sorted(
            (*key, known.n) for key, known in self.visible().items()
        )

    @rule(size=st.integers(1, 4))
    def the_whole_feed_has_each_item_once_in_order(self, size: int) -> None:
        seen = self.feed({}, size)[0]
        self.check_feed(seen, self.visible())

    @rule(size=st.integers(1, 4))
    def a_reader_goes_on(self, size: int) -> None:
        """What was written since it last read, and is still there."""
        before = self.read_up_to
        self.read_up_to = next(self.writes)
        seen, self.reader = self.feed(self.reader, size)
        self.check_feed(seen, {key: known for key, known in self.visible().items() if known.write > before})

    def feed(self, positions: dict[str, str], size: int) -> tuple[list[list[Any]], dict[str, str]]:
        """The pages of every physical partition, and where they end. A child begins where its parent was left."""
        _, body, _ = self.send("GET", "dbs/d/colls/c/pkranges")
        pages: list[list[Any]] = []
        reached: dict[str, str] = {}
        for part in body["PartitionKeyRanges"]:
            known = [
                positions[name] for name in (part["id"], *reversed(part["parents"])) if name in positions
            ]
            etag = known[0] if known else '"0"'
            status = 200
            while status == 200:
                status, page, headers = self.send(
                    "GET",
                    ITEMS,
                    A_IM="Incremental Feed",
                    If_None_Match=etag,
                    x_ms_max_item_count=str(size),
                    x_ms_documentdb_partitionkeyrangeid=part["id"],
                )
                etag = headers["etag"]
                pages += [page["Documents"]] if status == 200 else []
            reached[part["id"]] = etag
        return pages, reached

    def check_feed(self, pages: list[list[Any]], wanted: Model) -> None:
        items = [item for page in pages for item in page]
        keys = [(item["pk"], item["id"]) for item in items]
        assert sorted(keys) == sorted(wanted)
        assert all(item["n"] == wanted[key].n for item, key in zip(items, keys, strict=True))
        place = {wanted[key].write: index for index, page in enumerate(pages) for key in map(_key, page)}
        for index, page in enumerate(pages):
            for key in map(_key, page):
                assert place[wanted[key].write] == index, "a transaction is split over two pages"
        for pk in {key[0] for key in keys}:
            writes = [wanted[key].write for key in keys if key[0] == pk]
            assert writes == sorted(writes), "the order of one partition key is broken"


def _key(item: Any) -> tuple[str, str]:
    return (item["pk"], item["id"])


TestModel = pytest.mark.long(pytest.mark.timeout(180)(CosmosMachine.TestCase))
TestModel.settings = settings(max_examples=2 * settings().max_examples, stateful_step_count=40)
