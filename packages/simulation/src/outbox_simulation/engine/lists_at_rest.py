"""Checks at rest that a list shows what its container holds: each document once, in order, for any page size.

There are no faults any more, replicas are up to date, and nobody writes: no deviation is accepted. The containers are
read past the service. Each page is asked for at one of two desks: one that was there all the time, and one that has
just begun, which knows nothing of earlier writes, and opens the tokens of the other.

The operators' lists are empty at rest. So after all other checks the broker refuses all events of the clients' requests
for a while, and invalid messages arrive.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from cosmos_outbox.composition.declarations import ReadModelDeclaration
from cosmos_outbox.cosmos.relay.parked_documents import EVENT
from cosmos_outbox.inbox.entry import EntrySchema
from cosmos_outbox.inbox.message import Delivery
from cosmos_outbox.inbox.set_aside import RecordState
from cosmos_outbox.lists.listing import Sorted
from cosmos_outbox.service import Wired
from outbox_simulation.engine.deployment import Deployment
from outbox_simulation.engine.lists import RULE
from outbox_simulation.engine.plan import SimulationPlan
from outbox_simulation.engine.processes import SimulatedProcess, serve_requests
from outbox_simulation.invariants.violation import Violation

_SIZES = (1, 2, 3, 5, 100)
_MOST_PAGES = 500
_LOOKS = 5
"""The most walks over a list whose container is written to at the same time, by scheduled changes."""
_DONE_MOST, _NONE_MOST = 3, 6
"""The most requests of each client, and the most invalid messages for each subscription."""
_PARKS_SECONDS = 20.0
"""The time after which a relay has read the writes and parked the refused events."""
_OPEN = [state.value for state in RecordState if state.is_open]

Document = Mapping[str, Any]


@dataclass(frozen=True)
class _List:
    """A list that a desk can page through."""

    container: str
    page: Callable[[Wired, int, str | None], Coroutine[Any, Any, Any]]
    holds: Callable[[Sequence[Document]], list[str]]
    """Returns the ids that it has to show, from the container's documents."""
    sort: str = ""
    """The order; empty: any."""


class ListsAtRest:
    """The checks of one run."""

    def __init__(self, plan: SimulationPlan, deployment: Deployment) -> None:
        self._deployment, self._ground = deployment, deployment.ground
        self._chance = plan.chance("lists at rest")

    async def look(self, clients: Sequence[Callable[[], Awaitable[None]]]) -> list[Violation]:
        """Returns what is wrong with each list. ``clients``: each makes one more request."""
        anew = SimulatedProcess(self._ground, "reader", serve_requests, self._chance)
        desks = [self._deployment.desks[0], anew]
        found = await self._look_at(self._read_models(), desks)
        await self._fill(clients, desks[0])
        return [*found, *await self._look_at(self._of_operators(), desks)]

    async def _fill(self, clients: Sequence[Callable[[], Awaitable[None]]], desk: SimulatedProcess) -> None:
        """Creates documents for the operators' lists."""
        self._ground.bus.refuses = lambda _aggregate, _event: True
        for _ in range(self._chance.randint(1, _DONE_MOST)):
            await asyncio.gather(*(act() for act in clients))
        for each in desk.wired.subscriptions.values():
            of = each.subscriber
            for number in range(self._chance.randint(1, _NONE_MOST)):
                none = Delivery(of.subscription, f"none-{number}", number, b"", {})
                await self._ground.loop.begin(desk.instance, of.receiver.keep(none, "nobody can read it"))
        await asyncio.sleep(_PARKS_SECONDS)

    async def _look_at(self, lists: Iterable[_List], desks: Sequence[SimulatedProcess]) -> list[Violation]:
        found = list[Violation]()
        for of in lists:
            for _ in range(_LOOKS):
                size, held = self._chance.choice(_SIZES), await self._held(of)
                label = f"at rest, by pages of {size}: {of.container}"
                try:
                    shown = await self._walk(of, size, desks)
                except Exception as error:  # noqa: BLE001 - a list may raise anything
                    return [*found, Violation(RULE, f"{label}: {error!r}")]
                if held == await self._held(of):
                    wrong = _difference(held, shown, sort=of.sort)
                    found += [Violation(RULE, f"{label} {wrong}")] if wrong else []
                    break
        return found

    def _read_models(self) -> Iterator[_List]:
        for each in self._ground.service.subscribers:
            if isinstance(each, ReadModelDeclaration) and each.form.orders:  # without orders there is no list
                sort = self._chance.choice(each.form.orders)
                container = self._deployment.settings.name(each.container)
                holds = partial(_living, each.form, Sorted.of(sort))
                yield _List(container, partial(_list_entries, each, sort), holds, sort)

    def _of_operators(self) -> Iterator[_List]:
        settings, service = self._deployment.settings, self._ground.service
        yield _List(settings.cosmos_parked_container, _list_parked, partial(_have, {"type": [EVENT]}))
        for each in service.subscribers:
            wanted = {"state": _OPEN, "partitionKey": [settings.name(each.subscription)]}
            page = partial(_list_set_aside, each.name)
            yield _List(settings.cosmos_set_aside_container, page, partial(_have, wanted))

    async def _held(self, of: _List) -> list[str]:
        async with self._deployment.container(of.container) as proxy:
            return of.holds([item async for item in proxy.read_all_items()])

    async def _walk(self, of: _List, size: int, desks: Sequence[SimulatedProcess]) -> list[str]:
        shown, token = list[str](), None
        for _ in range(_MOST_PAGES):
            desk = self._chance.choice(desks)
            page = await self._ground.loop.begin(desk.instance, of.page(desk.wired, size, token))
            shown += [each.id for each in page.items]
            token = page.continuation_token
            if token is None:
                return shown
        raise AssertionError(f"it has no end after {_MOST_PAGES} pages")


async def _list_parked(wired: Wired, size: int, token: str | None) -> Any:
    return await wired.operator.parking.page(size, token)


async def _list_set_aside(name: str, wired: Wired, size: int, token: str | None) -> Any:
    return await wired.subscriptions[name].subscriber.retrier.page(size, token)


async def _list_entries(
    of: ReadModelDeclaration[Any], sort: str, wired: Wired, size: int, token: str | None
) -> Any:
    return await wired.read_model(of).listing.page([], sort, size, token)


def _have(wanted: Mapping[str, Collection[str]], documents: Sequence[Document]) -> list[str]:
    return [
        str(each["id"])
        for each in documents
        if all(each.get(name) in values for name, values in wanted.items())
    ]


def _living(form: EntrySchema[Any], by: Sorted, documents: Sequence[Document]) -> list[str]:
    """Returns the readable entries that are not deleted, in their order."""
    living = [each for each in documents if each.get("deleted") is False and form.read(each) is not None]
    places = [(each["search"][by.text], str(each["id"])) for each in living if by.text in each["search"]]
    return [name for _, name in sorted(places, reverse=by.down)]


def _difference(held: Sequence[str], shown: Sequence[str], *, sort: str) -> str:
    there, listed = Counter(held), Counter(shown)
    if left_out := sorted(there - listed):
        return f"leaves {', '.join(left_out)} out"
    if more := sorted(listed - there):
        return f"shows {more[0]} {listed[more[0]]} times, which is there {there[more[0]]} times"
    return f"is not sorted by {sort}" if sort and [*held] != [*shown] else ""
