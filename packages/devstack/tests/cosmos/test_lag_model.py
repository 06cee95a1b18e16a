"""Random writes, expiries and splits, and reads while replicas lag: each answer is one that Session consistency allows.

The model keeps every state that a physical partition ever had, one for each transaction. Allowed is any of them that is
not older than the client's token for that partition nor older than the fault says, as of any moment since.
As in ``test_model``, requests go through the whole server but its socket, so that time can be set.
"""

import contextlib
import itertools
import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from multidict import CIMultiDict

from cosmos.raw import authorization
from devstack.cosmos.dispatch import Dispatcher
from devstack.cosmos.resources import partitions
from devstack.cosmos.resources.service import Options, Service
from devstack.cosmos.storage.catalogue import Catalogue
from devstack.cosmos.storage.history import History
from devstack.cosmos.storage.model import Container, Range
from devstack.cosmos.storage.store import Store
from devstack.cosmos.wire.auth import Authorizer
from devstack.cosmos.wire.faults import Fault, Faults

pytestmark = pytest.mark.long  # tests/contract goes through the same calls, quickly

ITEMS = "dbs/d/colls/c/docs"
KEYS = st.sampled_from(["a", "b", "c", "d"])
IDS = st.sampled_from(["1", "2", "3"])
TTLS = st.sampled_from([None, None, 1, 3])
LAGS = st.one_of(
    st.none(),
    st.builds(
        lambda seconds, share: Fault(kind="lag", seconds=seconds, share=share),
        st.integers(0, 5),
        st.sampled_from([0.5, 1]),
    ),
    st.builds(
        lambda versions, share: Fault(kind="lag", versions=versions, share=share),
        st.integers(0, 4),
        st.sampled_from([0.5, 1]),
    ),
)
TOKENS = st.integers(0, 6)
"""0: none; else the how manieth last that an answer gave."""

Key = tuple[str, str]


@dataclass(frozen=True)
class Known:
    n: int
    lsn: int
    dies: int | None
    """The first second in which it is gone."""


@dataclass(frozen=True)
class State:
    """A physical partition after the transaction ``lsn``, made in the second ``at``."""

    lsn: int
    at: int
    items: dict[Key, Known]

    def visible(self, now: int) -> dict[Key, Known]:
        return {key: known for key, known in self.items.items() if known.dies is None or now < known.dies}


class LagMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="cosmos-lag-model-"))
        self.resources = contextlib.ExitStack()
        self.store = self.resources.enter_context(Store.opened(self.folder))
        self.time = 1_000_000
        history = History(self.store.connection, lambda: self.time)
        self.service = Service(
            self.store,
            Catalogue(self.store, history),
            Options(partitions=2),
            clock=lambda: self.time,
            history=history,
        )
        self.faults = Faults()
        self.dispatcher = Dispatcher(self.service, Authorizer(), self.faults)
        self.numbers = itertools.count(1)
        self.tokens: list[str] = []
        self.fed: dict[int, tuple[int, dict[Key, Known]]] = {}
        """What the reader of each feed has, and up to which LSN."""

    @initialize()
    def make_container(self) -> None:
        self.send("POST", "dbs", {"id": "d"})
        body = {"id": "c", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}, "defaultTtl": -1}
        assert self.send("POST", "dbs/d/colls", body)[0] == 201
        self.states = {part.id: [State(1, self.time, {})] for part in self.container.ranges}

    def teardown(self) -> None:
        for part in self.container.ranges:
            while self.feed(part, None, size=2) == 200:
                pass
            _, seen = self.fed[part.id]
            newest = self.states[part.id][-1].visible(self.time)
            assert newest.items() <= seen.items()
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
        content = b"" if body is None else json.dumps(body).encode()
        answer = self.dispatcher.serve(method, f"/{path}", sent, content)
        return answer.status, None if answer.body is None else json.loads(answer.body), answer.headers

    # -- the model

    @property
    def container(self) -> Container:
        return self.service.catalogue.container("d", "c")

    def part(self, pk: str) -> Range:
        return self.container.range_of(self.container.key.effective((pk,)))

    def newest(self, pk: str) -> dict[Key, Known]:
        return self.states[self.part(pk).id][-1].visible(self.time)

    def lsn_of(self, part: Range, headers: dict[str, str]) -> int:
        """The LSN of the answer's token."""
        token = headers["x-ms-session-token"]
        assert token.startswith(f"{part.id}:-1#")
        self.tokens.append(token)
        return int(token.rpartition("#")[2])

    def written(self, pk: str, headers: dict[str, str], changes: dict[Key, Known | None]) -> None:
        part = self.part(pk)
        states = self.states[part.id]
        lsn = self.lsn_of(part, headers)
        assert lsn == states[-1].lsn + 1
        items = {key: known for key, known in states[-1].items.items() if key not in changes}
        states.append(State(lsn, self.time, items | {key: known for key, known in changes.items() if known}))

    def refused(self, pk: str, headers: dict[str, str]) -> None:
        """A write's refusal is about the newest state."""
        part = self.part(pk)
        assert self.lsn_of(part, headers) == self.states[part.id][-1].lsn

    def token(self, back: int) -> dict[str, str]:
        return {"x_ms_session_token": self.tokens[-back]} if 0 < back <= len(self.tokens) else {}

    @contextlib.contextmanager
    def lagging(self, lag: Fault | None) -> Iterator[None]:
        if lag:
            self.faults.add(lag)
        yield
        self.faults.clear()

    def allowed(
        self, part: Range, headers: dict[str, str], sent: dict[str, str], lag: Fault | None
    ) -> tuple[State, list[int]]:
        """The state that the answer says it is from, and the seconds of which it may be. Fails for one not allowed."""
        states, lsn = self.states[part.id], self.lsn_of(part, headers)
        state = next(state for state in states if state.lsn == lsn)
        if "x_ms_session_token" in sent:
            number, _, seen = sent["x_ms_session_token"].partition(":-1#")
            assert int(number) not in (part.id, *part.parents) or lsn >= int(seen)
        if lag is None:
            assert state is states[-1]
            return state, [self.time]
        if lag.versions is not None:
            assert states[-1].lsn - lsn <= lag.versions
            return state, list(range(state.at, self.time + 1))
        then = self.time - int(lag.seconds)
        assert state is states[-1] or states[states.index(state) + 1].at > then
        return state, list(range(max(state.at, then), self.time + 1))

    def known(self, document: dict[str, Any], lsn: int) -> Known:
        return Known(document["n"], lsn, self.time + document["ttl"] + 1 if "ttl" in document else None)

    # -- what happens

    @rule(seconds=st.integers(1, 3))
    def time_passes(self, seconds: int) -> None:
        self.time += seconds

    @rule(pk=KEYS, ids=st.sets(IDS, min_size=1), ttl=TTLS)
    def several_are_written_at_once(self, pk: str, ids: set[str], ttl: int | None) -> None:
        more = {} if ttl is None else {"ttl": ttl}
        documents = [{"id": one, "pk": pk, "n": next(self.numbers), **more} for one in sorted(ids)]
        operations = [{"operationType": "Upsert", "resourceBody": document} for document in documents]
        flags = {"x_ms_cosmos_is_batch_request": "True", "x_ms_cosmos_batch_atomic": "True"}
        with self.lagging(Fault(kind="lag", versions=9)):
            status, _, headers = self.send("POST", ITEMS, operations, **self.key(pk), **flags)
        assert status == 200
        lsn = self.states[self.part(pk).id][-1].lsn + 1
        self.written(
            pk, headers, {(pk, str(document["id"])): self.known(document, lsn) for document in documents}
        )

    @rule(pk=KEYS, item_id=IDS)
    def one_is_created(self, pk: str, item_id: str) -> None:
        document = {"id": item_id, "pk": pk, "n": next(self.numbers)}
        with self.lagging(Fault(kind="lag", versions=9)):
            status, _, headers = self.send("POST", ITEMS, document, **self.key(pk))
        if (pk, item_id) in self.newest(pk):
            assert status == 409
            return self.refused(pk, headers)
        assert status == 201
        lsn = self.states[self.part(pk).id][-1].lsn + 1
        return self.written(pk, headers, {(pk, item_id): self.known(document, lsn)})

    @rule(pk=KEYS, item_id=IDS)
    def one_is_deleted(self, pk: str, item_id: str) -> None:
        with self.lagging(Fault(kind="lag", versions=9)):
            status, _, headers = self.send("DELETE", f"{ITEMS}/{item_id}", **self.key(pk))
        if (pk, item_id) not in self.newest(pk):
            assert status == 404
            return self.refused(pk, headers)
        assert status == 204
        return self.written(pk, headers, {(pk, item_id): None})

    @rule(pk=KEYS, item_id=IDS, back=TOKENS, lag=LAGS)
    def one_is_read(self, pk: str, item_id: str, back: int, lag: Fault | None) -> None:
        sent = self.token(back)
        with self.lagging(lag):
            status, body, headers = self.send("GET", f"{ITEMS}/{item_id}", **self.key(pk), **sent)
        state, moments = self.allowed(self.part(pk), headers, sent, lag)
        found = body["n"] if status == 200 else None
        possible = [state.visible(now).get((pk, item_id)) for now in moments]
        assert status in (200, 404)
        assert found in [None if known is None else known.n for known in possible]

    @rule(data=st.data(), back=TOKENS, lag=LAGS)
    def a_partition_is_queried(self, data: st.DataObject, back: int, lag: Fault | None) -> None:
        part = data.draw(st.sampled_from(self.container.ranges))
        sent = self.token(back)
        with self.lagging(lag):
            status, body, headers = self.send(
                "POST",
                ITEMS,
                {"query": data.draw(st.sampled_from(["SELECT * FROM c", "SELECT * FROM c ORDER BY c.n"]))},
                Content_Type="application/query+json",
                x_ms_documentdb_isquery="True",
                x_ms_documentdb_partitionkeyrangeid=str(part.id),
                **sent,
            )
        assert status == 200
        state, moments = self.allowed(part, headers, sent, lag)
        found = {(item["pk"], item["id"]): item["n"] for item in body["Documents"]}
        assert found in [
            {key: known.n for key, known in state.visible(now).items()} for now in moments
        ]  # one prefix of all transactions: none in part, none without those before it

    @rule(data=st.data(), lag=LAGS, size=st.integers(1, 4))
    def a_feed_is_read_on(self, data: st.DataObject, lag: Fault | None, size: int) -> None:
        self.feed(data.draw(st.sampled_from(self.container.ranges)), lag, size)

    @rule(data=st.data())
    def a_partition_splits(self, data: st.DataObject) -> None:
        if len(self.container.ranges) > 4:
            return
        self.split(data.draw(st.sampled_from(self.container.ranges)))

    def split(self, parent: Range) -> None:
        for child in partitions.split(self.service, self.container, parent.id).children:
            self.states[child.id] = [
                State(
                    state.lsn,
                    state.at,
                    {key: known for key, known in state.items.items() if self.part(key[0]) == child},
                )
                for state in self.states[parent.id]
            ]
            reached, seen = self.fed.get(parent.id, (0, {}))
            self.fed[child.id] = (
                reached,
                {key: known for key, known in seen.items() if self.part(key[0]) == child},
            )

    def feed(self, part: Range, lag: Fault | None, size: int) -> int:
        """Read one page on; what was seen before must not be missing before it."""
        reached, seen = self.fed.get(part.id, (0, {}))
        with self.lagging(lag):
            status, body, headers = self.send(
                "GET",
                ITEMS,
                A_IM="Incremental Feed",
                If_None_Match=f'"{reached}"',
                x_ms_max_item_count=str(size),
                x_ms_documentdb_partitionkeyrangeid=str(part.id),
            )
        state, moments = self.allowed(part, headers, {}, lag)
        end = int(headers["etag"].strip('"'))
        page = {(item["pk"], item["id"]): item for item in body["Documents"]} if body else {}
        lsns = [item["_lsn"] for item in page.values()]
        assert lsns == sorted(lsns)
        assert end == (lsns[-1] if lsns else max(state.lsn, reached))
        news = [
            {key: known.n for key, known in state.visible(now).items() if reached < known.lsn <= end}
            for now in moments
        ]
        assert {key: item["n"] for key, item in page.items()} in news
        self.fed[part.id] = (end, seen | {key: state.items[key] for key in page})
        return status

    def key(self, pk: str) -> dict[str, str]:
        return {"x_ms_documentdb_partitionkey": json.dumps([pk])}


TestLagModel = LagMachine.TestCase
TestLagModel.settings = settings(max_examples=settings().max_examples // 4, stateful_step_count=40)


@pytest.mark.parametrize("changed", [False, True])
def test_a_new_partitions_replica_is_not_older_than_its_split(changed: bool) -> None:
    """What was before a split is known to it, so what had expired by then is gone."""
    machine = LagMachine()
    machine.make_container()
    machine.several_are_written_at_once(pk="a", ids={"1"}, ttl=1)
    machine.time_passes(seconds=2)
    machine.one_is_created(pk="a", item_id="2")
    machine.split(machine.part("a"))
    if changed:
        machine.one_is_created(pk="a", item_id="3")
    machine.one_is_read(pk="a", item_id="1", back=0, lag=Fault(kind="lag", seconds=1))
    machine.teardown()
