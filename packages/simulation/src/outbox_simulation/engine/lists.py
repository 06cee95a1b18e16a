"""Pages through lists all the time, the operators' and the read models', also during faults, and checks each page.

A page that fails must fail as temporarily unavailable, and is asked for again with the same token, which must continue
the list. A walk must show nothing twice and nothing that never was; documents that were there all the time, and for
longer than a replica lags, must be in it, and documents gone for as long must not. A read model is walked in any of its
orders: an entry written during the walk may move behind or ahead of it.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cosmos_outbox.composition.declarations import ReadModelDeclaration
from cosmos_outbox.cosmos.relay.parked_documents import EVENT
from cosmos_outbox.inbox.errors import StoreUnavailable
from cosmos_outbox.outbox.errors import Throttled, Unavailable
from cosmos_outbox.service import Wired
from devstack.http_in_memory import SentRequest, StoreResponse
from outbox_simulation.engine.deployment import Deployment
from outbox_simulation.engine.plan import SimulationPlan
from outbox_simulation.engine.watching import written
from outbox_simulation.invariants.violation import Violation

RULE = "a list"
_PASSES = (Unavailable, Throttled, StoreUnavailable)
"""The errors answered as 503 or 429, after which a client asks again."""
_SIZES = (1, 2, 5, 100)
_MOST_PAGES = 500
_LAGS_SECONDS, _LAGS_LITTLE_SECONDS = 80.0, 5.0
"""The longest lag of a read, in a run where replicas lag, and in others."""
_WAITS_SECONDS = (0.5, 8.0)

Page = Callable[[int, str | None], Awaitable[Any]]


@dataclass
class _Lasted:
    """The time during which a document was in the list."""

    since: float
    until: float | None = None
    times: int = 1
    written: float = 0.0
    """The time of the last write."""


@dataclass
class ListedDocuments:
    """The documents of a list that a container holds, by the writes that the store carried out."""

    container: str
    shows: Callable[[Mapping[str, Any]], bool]
    documents: dict[str, _Lasted] = field(default_factory=dict)

    def saw(self, at: float, request: SentRequest, response: StoreResponse) -> None:
        """Records a request that was carried out."""
        known = f"/colls/{self.container}/docs" in request.path and response.status < 300
        if not known or response.status == 207 or "x-ms-documentdb-isquery" in request.headers:
            return
        if request.method == "DELETE":
            self._gone(request.path.rpartition("/")[2], at)
        elif request.method in ("POST", "PUT") and request.body:
            for each in _deleted(request):
                self._gone(each, at)
            for document in written(request):
                if "id" in document:
                    self._written(document, at)

    def _written(self, document: Mapping[str, Any], at: float) -> None:
        name, known = str(document["id"]), self.documents.get(str(document["id"]))
        if not self.shows(document):
            self._gone(name, at)
        elif known is None:
            self.documents[name] = _Lasted(at, written=at)
        elif known.until is not None:
            self.documents[name] = _Lasted(at, times=known.times + 1, written=at)
        else:
            known.written = at

    def _gone(self, name: str, at: float) -> None:
        known = self.documents.get(name)
        if known is not None and known.until is None:
            known.until = at


class ListReader:
    """The list readers of one run."""

    def __init__(self, plan: SimulationPlan, deployment: Deployment, wrong: list[Violation]) -> None:
        """``wrong``: takes the violations."""
        self._deployment, self._ground, self._wrong = deployment, deployment.ground, wrong
        self._chance = plan.chance("lists")
        behind = any(kind.startswith(("store.", "meet.", "plot.")) for kind in plan.faults)
        self._lags = _LAGS_SECONDS if behind else _LAGS_LITTLE_SECONDS
        settings = deployment.settings
        self._parked = ListedDocuments(
            settings.cosmos_parked_container, lambda each: each.get("type") == EVENT
        )
        self._aside = ListedDocuments(
            settings.cosmos_set_aside_container, lambda each: each.get("state") in _OPEN
        )
        self._read_models = {
            each.name: (
                each,
                ListedDocuments(settings.name(each.container), lambda each: each.get("deleted") is False),
            )
            for each in self._ground.service.subscribers
            if isinstance(each, ReadModelDeclaration) and each.form.orders  # without orders there is no list
        }
        entries = [each for _, each in self._read_models.values()]
        self._ground.store.saw += [each.saw for each in (self._parked, self._aside, *entries)]
        self.walks = 0

    async def go_on(self, over: Callable[[], bool]) -> None:
        """Reads lists until the run is over."""
        while not over():
            await asyncio.sleep(self._chance.uniform(*_WAITS_SECONDS))
            desk = self._deployment.desks[0]
            lists: list[tuple[ListedDocuments, Page]] = [(self._parked, desk.wired.operator.parking.page)]
            lists += [
                (self._aside, each.subscriber.retrier.page) for each in desk.wired.subscriptions.values()
            ]
            lists += [(of, self._sorted(name, desk.wired)) for name, (_, of) in self._read_models.items()]
            of, page = self._chance.choice(lists)
            moves = of not in (self._parked, self._aside)
            work = _Walk(of, page, self._chance.choice(_SIZES), self._ground.loop.time, over, moves=moves)
            await self._ground.loop.begin(desk.instance, work.go_on())
            self._wrong += work.judged(self._lags, whole=of is not self._aside)
            self._wrong += await self._ground.loop.begin(desk.instance, _status(desk.wired))
            self.walks += work.ended

    def _sorted(self, name: str, wired: Wired) -> Page:
        """Returns a read model's page, in one of its orders."""
        declared, _ = self._read_models[name]
        kept, sort = wired.read_model(declared), self._chance.choice(declared.form.orders)
        return lambda size, token: kept.listing.page([], sort, size, token)


@dataclass
class _Walk:
    """A walk from the first page of a list to its last."""

    of: ListedDocuments
    page: Page
    size: int
    now: Callable[[], float]
    over: Callable[[], bool]
    moves: bool = False
    """Whether a write changes a document's position in the list."""
    shown: list[tuple[float, str]] = field(default_factory=list)
    wrong: list[Violation] = field(default_factory=list)
    began: float = 0.0
    ended: bool = False

    async def go_on(self) -> None:
        self.began, token = self.now(), None
        for _ in range(_MOST_PAGES):
            try:
                page = await self.page(self.size, token)
            except _PASSES:
                if self.over():
                    return
                await asyncio.sleep(1.0)
                continue
            except Exception as error:  # noqa: BLE001 - a list may raise anything
                self.wrong.append(Violation(RULE, f"{self.of.container}: {error!r}"))
                return
            self.shown += [(self.now(), each.id) for each in page.items]
            token = page.continuation_token
            if token is None:
                self.ended = True
                return
        self.wrong.append(Violation(RULE, f"{self.of.container}: it has no end after {_MOST_PAGES} pages"))

    def judged(self, lags: float, *, whole: bool) -> list[Violation]:
        """Returns the violations. ``whole``: the store shows for each document when it left the list."""
        found, documents = [*self.wrong], self.of.documents
        for name, times in Counter(name for _, name in self.shown).items():
            if name not in documents:
                found.append(Violation(RULE, f"{self.of.container} shows {name}, which never was in it"))
            elif times > documents[name].times and not self._has_moved(documents[name], lags):
                found.append(Violation(RULE, f"{self.of.container} shows {name} {times} times"))
        for at, name in self.shown if whole else ():
            known = documents.get(name)
            if known is not None and known.until is not None and known.until < at - lags:
                found.append(Violation(RULE, f"{self.of.container} shows {name}, which is long gone"))
        names = {name for _, name in self.shown}
        for name, known in documents.items() if whole and self.ended else ():
            lasts = known.since < self.began - lags and known.until is None
            if lasts and name not in names and not self._has_moved(known, lags):
                found.append(Violation(RULE, f"{self.of.container} leaves {name} out"))
        return found

    def _has_moved(self, known: _Lasted, lags: float) -> bool:
        return self.moves and known.written > self.began - lags


async def _status(wired: Wired) -> list[Violation]:
    """Checks that the relay's status is returned, or fails as unavailable."""
    try:
        await wired.operator.observer.status()
    except _PASSES:
        return []
    except Exception as error:  # noqa: BLE001 - a call may raise anything
        return [Violation(RULE, f"of leases: {error!r}")]
    return []


def _deleted(request: SentRequest) -> list[str]:
    """Returns the documents that a transaction deletes."""
    if request.kind != "batch":
        return []
    return [str(each["id"]) for each in json.loads(request.body) if each.get("operationType") == "Delete"]


_OPEN = ("waiting", "refused")
