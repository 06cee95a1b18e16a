"""What the contact service asks of its store while nothing happens, counted at the SDK's transport over simulated days.

The timers of ``function_app.py`` run as their schedules say, against devstack's Cosmos DB on a clock of the test's own,
and the table in docs/operate/costs.md is made of what was counted.
"""

import json
import math
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import web
from azure.cosmos.aio import ContainerProxy

from cosmos_changefeed import ChangeFeedProcessor, ProcessorOptions, StartFrom, estimate_lag
from cosmos_outbox import testing
from cosmos_outbox.cosmos.inbox.reaction_decision import InOrder
from cosmos_outbox.cosmos.inbox.records import CosmosEffects, CosmosSetAside
from cosmos_outbox.cosmos.store.client import TrackingTransport
from cosmos_outbox.inbox.effect import EffectInbox, EffectRules
from cosmos_outbox.inbox.errors import ReactionRefused
from cosmos_outbox.inbox.message import Event
from cosmos_outbox.inbox.read_model import StateInbox
from cosmos_outbox.inbox.receiver import Receiver
from cosmos_outbox.inbox.set_aside import Collected
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.aggregate_block import AggregateBlock
from cosmos_outbox.service import Wired
from cosmos_outbox.servicebus.sessions import SILENCE_SECONDS, DeadLetters
from devstack import provision
from devstack.cosmos import server
from devstack.cosmos.resources.service import Options
from devstack.cosmos.resources.service import Service as Cosmos
from devstack.cosmos.wire import auth
from devstack.cosmos.wire.auth import EMULATOR_KEY, Authorizer
from devstack.settings import read_settings
from devstack.testing import Service, eventually
from domain.values import ContactDetails
from function_app import app
from infra.bootstrap import service
from tests.support.azure import Topic
from tests.support.contacts import DETAILS, ORIGIN
from tests.support.functions import functions
from tests.support.inbox import delivery, read
from tests.support.paths import ROOT
from tests.support.reactions import Heap, Heaps, message_for
from tests.support.use_cases import contacts_of, healing_of, read_model_of, subscriber_of, wire

pytestmark = pytest.mark.needs_a_socket("a proxy that counts")

PAGE = " ".join((ROOT / "docs" / "operate" / "costs.md").read_text().split())
PRICES = {"read": 1.0, "write": 4.95, "query": 3.0, "listed": 1.0, "feed": 1.0, "metadata": 0.0}
"""In request units, as in the rest of the page: of an operation on 1 KB, and of each item that a query gives.

The service bills no read of an account's, a container's or a partition's properties.
"""
USD_A_MILLION = 0.25
LISTED = 100
"""How many items a page of a walk has."""

MONTH = timedelta(hours=730)
BEGIN = datetime(2026, 3, 2, tzinfo=UTC)

Operations = Counter[str]


def charge(operations: Operations) -> float:
    return sum(PRICES[kind] * count for kind, count in operations.items())


def kind_of(request: Any) -> str:
    headers = {name.lower(): value for name, value in request.headers.items()}
    last = request.url.partition("?")[0].rstrip("/").rpartition("/")[2]
    if "x-ms-cosmos-is-query-plan-request" in headers:
        return "metadata"
    if headers.get("x-ms-documentdb-isquery", "").lower() == "true" or "query+json" in headers.get(
        "content-type", ""
    ):
        return "query"
    if request.method != "GET":
        return "write"
    if "a-im" in headers and last == "docs":
        return "feed"
    return "read" if "/docs/" in request.url else "metadata"


def is_batch(request: Any) -> bool:
    """Each operation of a transaction is charged."""
    return "x-ms-cosmos-is-batch-request" in {name.lower() for name in request.headers}


@dataclass
class Simulation:
    """A deployment of the contact service on a clock of its own."""

    now: datetime = BEGIN
    operations: Operations = field(default_factory=Counter)
    environment: dict[str, str] = field(default_factory=dict)

    def clock(self) -> float:
        return self.now.timestamp()

    def taken(self) -> Operations:
        """What was asked for since the last call."""
        taken, self.operations = self.operations, Counter()
        return taken


@pytest.fixture
def simulation(monkeypatch: pytest.MonkeyPatch) -> Simulation:
    world = Simulation()
    monkeypatch.setattr(
        auth, "SKEW_SECONDS", math.inf
    )  # a request may be under way while the clock is put forward
    send, response = TrackingTransport.send, server._response

    async def counted(transport: Any, request: Any, **options: Any) -> Any:
        answer = await send(transport, request, **options)
        kind = kind_of(request)
        world.operations[kind] += len(json.loads(request.data)) if is_batch(request) else 1
        if kind == "query":
            world.operations["listed"] += int(answer.headers.get("x-ms-item-count", 0))
        return answer

    def dated(answer: Any) -> web.Response:
        made = response(answer)
        made.headers["Date"] = format_datetime(world.now, usegmt=True)
        return made

    monkeypatch.setattr(TrackingTransport, "send", counted)
    monkeypatch.setattr(server, "_response", dated)
    monkeypatch.setattr(server, "Service", partial(Cosmos, clock=world.clock))
    monkeypatch.setattr(
        "cosmos_outbox.composition.subscriptions.StateInbox", partial(StateInbox, clock=lambda: world.now)
    )
    return world


@pytest.fixture
async def application(
    simulation: Simulation, servicebus_server: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Wired]:
    topic = Topic(servicebus_server)
    await topic.create()
    async with server.serving(0, tmp_path / "data", Options(), Authorizer()) as address:
        environment = {
            "COSMOS": f"AccountEndpoint={address};AccountKey={EMULATOR_KEY};",
            "SERVICEBUS": servicebus_server.connection_string,
            "SERVICEBUS_TOPIC": topic.name,
            "SERVICEBUS_SUBSCRIPTION": topic.subscription,
        }
        simulation.environment = environment
        await provision.cosmos(environment["COSMOS"], read_settings(environment, ROOT).app.cosmos)
        made = wire(environment)
        async with made.outbox.resources:
            with service.taken_from(made):
                yield made
    await topic.delete()


@pytest.fixture
async def another(application: Wired, simulation: Simulation) -> AsyncIterator[Wired]:
    """Another process of the same deployment."""
    made = wire(simulation.environment)
    async with made.outbox.resources:
        await made.check()
        yield made


async def filled(application: Wired, simulation: Simulation, contacts: int) -> None:
    """Contacts of a day ago, all in the directory, and a relay that has forwarded everything."""
    first = (await contacts_of(application).create(DETAILS, ORIGIN)).aggregate.id
    stored: ContainerProxy = application.outbox.feed
    document = await stored.read_item(str(first), str(first))
    for _ in range(contacts - 1):
        contact_id = str(uuid4())
        data = {**document["data"], "id": contact_id}
        await stored.create_item({**document, "id": contact_id, "partitionKey": contact_id, "data": data})
    simulation.now += timedelta(days=1)
    outbox = application.outbox

    async def forwarded(*_: object) -> None:
        return

    prefix = outbox.settings.feed.lease_prefix
    options = ProcessorOptions(start=StartFrom.beginning(), poll_interval=0.05)
    async with ChangeFeedProcessor(
        outbox.feed,
        application.relay.leases,
        forwarded,
        instance_name="relay",
        lease_prefix=prefix,
        options=options,
    ):

        async def at_rest() -> bool:
            lag = await estimate_lag(outbox.feed, application.relay.leases, lease_prefix=prefix)
            return bool(lag.leases) and not any(lease.lag for lease in lag.leases)

        await eventually(at_rest)
    await healing_of(application).run(seconds=60)
    progress = await healing_of(application).progress()
    assert progress is not None
    assert progress.last_counts is not None
    assert (progress.last_counts.sources, progress.last_counts.failed) == (contacts, 0)


def every(schedule: str) -> int:
    """The minutes between two runs of a timer."""
    minutes = schedule.split()[1]
    return 60 if minutes == "0" else 1 if minutes == "*" else int(minutes.removeprefix("*/"))


TIMERS = {
    name: every(function.get_trigger().get_dict_repr()["schedule"])  # type: ignore[union-attr]
    for name, function in functions().items()
    if (function.get_trigger().get_dict_repr()["type"]) == "timerTrigger"  # type: ignore[union-attr]
}


async def run(name: str) -> None:
    await functions()[name].get_user_function()(timer=None)


async def nothing_collected(*_: object, **__: object) -> Collected:
    """The broker's part, which has no price of its own and waits two seconds each time."""
    return Collected(0, emptied=True)


async def rested(
    application: Wired, simulation: Simulation, monkeypatch: pytest.MonkeyPatch, hours: int
) -> Mapping[str, Operations]:
    """What each timer asked for in so many hours in which nothing happens."""

    monkeypatch.setattr(DeadLetters, "collect", nothing_collected)
    asked: dict[str, Operations] = {}
    for name, minutes in TIMERS.items():
        await run(name)  # connects, and makes up for the days in which the timers before ran
        simulation.now += timedelta(minutes=10)
        simulation.taken()
        for _ in range(runs_of(name, hours)):
            simulation.now += timedelta(minutes=minutes)
            await run(name)
        asked[name] = simulation.taken()
    return asked


def runs_of(timer: str, hours: int) -> int:
    """In so many hours; of one that runs each hour, and works once a day, in as many days."""
    return 24 * hours if TIMERS[timer] == 60 else 60 * hours // TIMERS[timer]


@pytest.mark.parametrize(
    ("contacts", "hours"),
    [
        pytest.param(3, 1, marks=pytest.mark.long),  # of 200 the hour is in the next test
        # Two timers work once a day: 20 days each, before a walk over all is due.
        *(pytest.param(each, 20, marks=[pytest.mark.deep, pytest.mark.timeout(600)]) for each in (3, 200)),
    ],
)
async def test_at_rest_the_timers_cost_the_documented_ru_for_any_contact_count(
    application: Wired, simulation: Simulation, monkeypatch: pytest.MonkeyPatch, contacts: int, hours: int
) -> None:
    await filled(application, simulation, contacts)
    assert_timers_shown(await rested(application, simulation, monkeypatch, hours), hours)


def assert_timers_shown(asked: Mapping[str, Operations], hours: int) -> None:
    for name, operations in asked.items():
        runs = runs_of(name, hours)
        took = runs * timedelta(minutes=TIMERS[name])
        assert_shown(f"`{name}`, every {TIMERS[name]} min", operations, runs, took)


async def test_the_cost_of_an_applied_event_is_documented(
    application: Wired, another: Wired, simulation: Simulation
) -> None:
    """In one process and in another, whose clients share nothing."""
    await filled(application, simulation, 1)
    contact_id = (await contacts_of(application).create(DETAILS, ORIGIN)).aggregate.id

    def described(before: ContactDetails) -> ContactDetails:
        return before.model_copy(update={"description": f"{before.description}!"})

    for _ in range(4):
        await contacts_of(application).revise(contact_id, described, ORIGIN)
    first = Event(
        "1", AggregateKey("contact", str(contact_id)), "ContactCreatedEvent", 1, simulation.now,
        {"contact": {**DETAILS.model_dump(mode="json", by_alias=True), "createdAt": "2026-03-01T12:00:00Z"}},
    )  # fmt: skip
    second, third, fifth = (
        replace(first, id=str(n), sequence=n, action="ContactDescriptionUpdatedEvent", data={})
        for n in (2, 3, 5)
    )
    simulation.taken()
    for inbox, event, what in [
        (read_model_of(application).inbox, first, "the first of a contact"),
        (read_model_of(application).inbox, second, "the next, in a process that applied the one before"),
        (read_model_of(another).inbox, third, "the next, in another process"),
        (read_model_of(another).inbox, third, "the same once more"),
        (read_model_of(another).inbox, fifth, "after a gap"),
    ]:
        await inbox.handle(event)
        asked = simulation.taken()
        show_row(f"| {what} | {shown(asked)} | {charge(asked):.2f} |")


@pytest.mark.long
async def test_the_cost_of_an_effect_is_documented(application: Wired, simulation: Simulation) -> None:
    await filled(application, simulation, 1)
    outbox, key = application.outbox, AggregateKey("contact", "7")
    names = ["ContactCreatedEvent", "ContactEmailUpdatedEvent"]
    first, other = (
        Event(str(place), key, name, place, simulation.now, {}) for place, name in enumerate(names, start=1)
    )
    rules = EffectRules(timedelta(days=42), frozenset({"ContactCreatedEvent"}))
    asked_for: list[int | None] = []

    async def effect(event: Event) -> None:
        asked_for.append(event.sequence)

    records = CosmosEffects(outbox.container("directory"), "mails", 3_628_800)
    aside = CosmosSetAside(
        outbox.container(outbox.settings.cosmos_set_aside_container), "mails", "t", closed_ttl_seconds=60
    )

    def receiving(rules: EffectRules) -> Receiver:
        inbox = EffectInbox(records, effect, rules, lambda: simulation.now)
        return Receiver(rules.reading(read), inbox.handle, aside, in_order=True)

    once = replace(first, id="once")
    simulation.taken()
    for receiver, event, what in [
        (receiving(rules), first, "with an effect"),
        (receiving(replace(rules, repeatable=False)), once, "with an effect that is not repeatable"),
        (receiving(rules), first, "the same once more"),
        (receiving(rules), other, "without an effect"),
    ]:
        await receiver.receive(delivery(event))
        asked = simulation.taken()
        show_row(f"| {what} | {shown(asked) or 'none'} | {charge(asked):.2f} |")
        if what == "with an effect":
            usd = charge(asked) * USD_A_MILLION
            show_row(f"A million events with an effect are {usd:.2f} USD")
    assert asked_for == [1, 1]


@pytest.mark.parametrize(
    ("order", "what"),
    [
        (InOrder.ANY, "changes an aggregate"),
        pytest.param(InOrder.NEWEST, "changes one, newest or each in order", marks=pytest.mark.long),
    ],
)
async def test_the_cost_of_a_reaction_is_documented(
    application: Wired, simulation: Simulation, order: InOrder, what: str
) -> None:
    client = application.outbox.container("contacts")._client
    heaps = Heaps(client, (application.outbox.settings.cosmos_database, "contacts"), order)
    name, inbox = await heaps.made(), heaps.instance()
    await inbox.handle(message_for(name, "before", 1))
    first = message_for(name, "first", 2)
    simulation.taken()
    await inbox.handle(first)
    asked = simulation.taken()
    show_row(f"| {what} | {shown(asked)} | {charge(asked):.2f} |")
    if order is InOrder.ANY:
        await heaps.change(name, Heap.close)
        for event, row in [
            (message_for(name, "late", 3), "changes nothing, or refuses"),
            (first, "the same once more"),
        ]:
            simulation.taken()
            with suppress(ReactionRefused):
                await inbox.handle(event)
            asked = simulation.taken()
            show_row(f"| {row} | {shown(asked)} | {charge(asked):.2f} |")


async def test_the_cost_of_a_read_is_documented(application: Wired, simulation: Simulation) -> None:
    await filled(application, simulation, 3)
    contact_id = (await contacts_of(application).create(DETAILS, ORIGIN)).aggregate.id
    for number in range(4):
        changed = {"description": f"{number}"}
        await contacts_of(application).revise(
            contact_id, partial(ContactDetails.model_copy, update=changed), ORIGIN
        )
    one = f"/api/contacts/{contact_id}"
    await testing.call(app, "GET", one)  # connects
    simulation.taken()
    for path, what in [
        (one, "`GET /api/contacts/{id}`"),
        ("/api/contacts?pageSize=3", "`GET /api/contacts`, a page of 3"),
        ("/api/directory?pageSize=3", "`GET /api/directory`, a page of 3"),
    ]:
        answer = await testing.call(app, "GET", path)
        assert answer.status_code == 200, answer.get_body()
        asked = simulation.taken()
        show_row(f"| {what} | {shown(asked)} | {charge(asked):.2f} |")


async def test_the_cost_of_a_patch_that_changes_nothing_is_documented(
    application: Wired, simulation: Simulation
) -> None:
    contact_id = (await contacts_of(application).create(DETAILS, ORIGIN)).aggregate.id
    simulation.taken()
    await contacts_of(application).revise(contact_id, lambda before: before, ORIGIN)
    asked = simulation.taken()
    show_row(f"| a PATCH that changes nothing | {shown(asked)} | {charge(asked):.2f} |")


async def test_a_page_costs_no_more_the_more_contacts_are_parked(
    application: Wired, simulation: Simulation
) -> None:
    lot = application.operator.parking.lot
    keys = [AggregateKey("contact", str(number)) for number in range(130)]
    block = AggregateBlock(keys[0], blocked_since=simulation.now)
    await lot.read_blocks(keys[30:])  # connects
    for parked, what in [(0, "none"), (30, "hundreds")]:
        for key in keys[:parked]:
            await lot.store(replace(block, aggregate=key))
        simulation.taken()
        assert not await lot.read_blocks(keys[30:])
        asked = simulation.taken()
        show_row(f"| a page's blocks, {what} parked | {shown(asked)} | {charge(asked):.2f} |")


@pytest.mark.long
async def test_what_the_workers_do_beside_is_documented(
    application: Wired, simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has no timers, and does what they do itself; of a walk the workers share the progress."""
    await filled(application, simulation, 3)
    await application.operator.observer.measure()
    simulation.taken()
    for _ in range(3):
        await application.operator.parking.upkeep()
        await application.operator.observer.measure()
    minutes = timedelta(minutes=3)
    assert_shown("each relay worker, every minute", simulation.taken(), 3, minutes)
    monkeypatch.setattr(DeadLetters, "collect", nothing_collected)
    for _ in range(3):
        await subscriber_of(application).watch()
    assert_shown("each subscriber worker, every minute", simulation.taken(), 3, minutes)
    await application.check()
    assert simulation.taken()["write"] == 3, (
        "once for each process: the store is asked whether it heeds If-Match"
    )
    container = application.outbox.container("contacts")
    for _ in range(3):
        await container.check()
    assert charge(simulation.taken()) == 0, "a probe reads the container's properties, which is not billed"


def test_the_timers_of_the_functions_plan_are_documented_too() -> None:
    runs = {name: MONTH / timedelta(minutes=minutes) for name, minutes in TIMERS.items()}
    seconds = sum(
        count * (SILENCE_SECONDS + 1 if name == "watch_contact_directory" else 1)
        for name, count in runs.items()
    )
    gigabytes = 2 * seconds
    show_row(f"{number(sum(runs.values()))} executions a month")
    show_row(f"{number(seconds)} s \N{MULTIPLICATION SIGN} 2 GB = {number(gigabytes)} GB-s")
    show_row(f"\N{MULTIPLICATION SIGN} 0.000026 = {(gigabytes - 100_000) * 0.000026:.2f} USD")
    show_row(f"{number(gigabytes / 4)} GB-s, which is free")


def assert_shown(what: str, operations: Operations, runs: int, took: timedelta) -> None:
    of_a_run = Counter({kind: round(count / runs, 3) for kind, count in operations.items()})
    show_row(f"| {what} | {shown(of_a_run)} | {number(charge(operations) * (MONTH / took))} |")


def show_row(line: str) -> None:
    assert line in PAGE, f"docs/operate/costs.md, At rest: write {line}"


def shown(operations: Operations) -> str:
    return ", ".join(f"{operations[kind]:g} {kind}" for kind in PRICES if PRICES[kind] and operations[kind])


def number(value: float) -> str:
    return f"{value:,.0f}".replace(",", " ")
