"""Changes are refused while events wait for too long; no request waits to learn that, and doubt refuses nobody."""

import asyncio
import inspect
import json
from typing import Any

import azure.functions as func
import pytest

from cosmos_outbox.operations import shedding
from cosmos_outbox.operations.shedding import LoadShedder
from cosmos_outbox.outbox.errors import Unavailable
from cosmos_outbox.settings.errors import Misconfigured, Overloaded
from devstack.testing import eventually
from infra.bootstrap import service as contact_service
from tests.support.contacts import DETAILS_JSON
from tests.support.functions import functions

SETTINGS = {"COSMOS": "AccountEndpoint=http://x/;AccountKey=eA==;", "SERVICEBUS": "Endpoint=sb://x/;A=b"}


class Relay:
    """How long its oldest event waits."""

    def __init__(self, age: float = 0.0) -> None:
        self.age = age
        self.looks = 0
        self.failure: Exception | None = None
        self.answers = asyncio.Event()
        self.answers.set()

    async def __call__(self) -> float:
        self.looks += 1
        await self.answers.wait()
        if self.failure is not None:
            raise self.failure
        return self.age


@pytest.fixture
def each_look_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shedding, "LOOK_SECONDS", 0.0)


def refused(shedder: LoadShedder) -> bool:
    try:
        shedder.check()
    except Overloaded:
        return True
    return False


def taken(shedder: LoadShedder) -> bool:
    return not refused(shedder)


async def test_off_unless_set_and_then_nothing_is_read() -> None:
    relay = Relay(1e9)
    shedder = LoadShedder(relay, None)
    for _ in range(3):
        shedder.check()
        await asyncio.sleep(0)
    assert relay.looks == 0
    await shedder.close()


@pytest.mark.usefixtures("each_look_is_new")
async def test_refused_from_the_limit_on_and_taken_again_well_below_it() -> None:
    relay = Relay(59)
    shedder = LoadShedder(relay, 60)
    await eventually(lambda: relay.looks > 2 or refused(shedder))
    assert not refused(shedder)
    relay.age = 60
    await eventually(lambda: refused(shedder))
    relay.age = 49
    looks = relay.looks
    await eventually(lambda: not taken(shedder) and relay.looks > looks + 2)
    relay.age = 47
    await eventually(lambda: taken(shedder))
    relay.age = 59
    looks = relay.looks
    await eventually(lambda: taken(shedder) and relay.looks > looks + 2)
    await shedder.close()


async def test_a_hundred_requests_at_once_cost_one_look_and_none_waits() -> None:
    relay = Relay(1000)
    relay.answers.clear()
    shedder = LoadShedder(relay, 60)
    assert [refused(shedder) for _ in range(100)] == [False] * 100
    await asyncio.sleep(0)
    assert relay.looks == 1
    relay.answers.set()
    await eventually(lambda: refused(shedder))
    assert relay.looks == 1
    await shedder.close()


@pytest.mark.usefixtures("each_look_is_new")
async def test_an_age_that_is_not_known_any_more_refuses_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(shedding, "TRUST_SECONDS", 0.2)
    relay = Relay(1000)
    shedder = LoadShedder(relay, 60)
    await eventually(lambda: refused(shedder))
    relay.failure = Unavailable("the store is away")
    await eventually(lambda: taken(shedder))
    assert caplog.text.count("is not known, so no change is refused for it: the store is away") == 1
    relay.failure = None
    await eventually(lambda: refused(shedder))
    await shedder.close()


def test_the_setting() -> None:
    assert contact_service.settings(SETTINGS).shed_load_after_seconds is None
    assert (
        contact_service.settings(SETTINGS | {"SHED_LOAD_AFTER_SECONDS": ""}).shed_load_after_seconds is None
    )
    assert (
        contact_service.settings(SETTINGS | {"SHED_LOAD_AFTER_SECONDS": "300"}).shed_load_after_seconds == 300
    )
    assert (
        contact_service.settings(SETTINGS | {"SHED_LOAD_AFTER_SECONDS": "0"}).shed_load_after_seconds is None
    )
    for wrong in ("4", "-1", "x", "864001"):
        with pytest.raises(Misconfigured, match="SHED_LOAD_AFTER_SECONDS is"):
            contact_service.settings(SETTINGS | {"SHED_LOAD_AFTER_SECONDS": wrong})


ID = "7b2d1a52-6a39-4b06-9b3c-0f4d3b1f6a10"
ORDER_LINE = {"sku": "A-1", "quantity": 2}
WRITERS: dict[str, dict[str, dict[str, Any]]] = {
    "function_app": {
        "create_contact": DETAILS_JSON,
        "patch_contact": {"description": None},
        "put_contact": DETAILS_JSON,
        "delete_contact": {},
    },
    "examples.orders.function_app": {
        "create_order": {"customer": "Contoso", "lines": [ORDER_LINE]},
        "create_gift": {"orderId": ID, "line": ORDER_LINE},
        "post_order_lines": ORDER_LINE,
        "post_order_ship": {},
    },
}
"""Every function of each service that stores a change, with a body that it takes."""

KEYED, PLAIN = {"Idempotency-Key": "once"}, dict[str, str]()
CREATORS = {"create_contact", "create_order", "create_gift"}
"""They take a key; any other function refuses one."""
READERS = {
    "function_app": {"get_contact", "list_contacts", "search_directory"},
    "examples.orders.function_app": {"get_order", "list_orders", "get_board"},
}


SHOWN = {
    "function_app": ["cosmos_outbox.service.Service.__call__"],
    "examples.orders.function_app": [
        "examples.orders.function_app.board",
        "cosmos_outbox.service.Service.__call__",  # which the declared calls have
    ],
}
"""The names under which each app finds its service."""


class Gate:
    """In the place of the service behind an app, and of each part of it: says what a function reached."""

    def __init__(self, *, shut: bool) -> None:
        self.shut = shut
        self.reached: list[str] = []
        self.outbox = self.shedder = self.contacts = self.directory = self.aggregates = self
        self.settings = contact_service.settings(SETTINGS)

    def read_model(self, _: object) -> "Gate":
        return self

    @property
    def listing(self) -> "Gate":
        return self

    def check(self) -> None:
        if self.shut:
            raise Overloaded("behind", retry_after_seconds=12)

    def __getattr__(self, name: str) -> Any:
        async def call(*given: Any, **options: Any) -> None:
            self.reached.append(name)
            raise RuntimeError("nothing is behind this gate")

        return call


def own_functions(app: str) -> dict[str, Any]:
    """The HTTP functions that an app writes or declares, without those that every service gets for its operators."""
    found = {name: each.get_user_function() for name, each in functions(app).items()}
    own = (app, "cosmos_outbox.http.calls")
    return {name: call for name, call in found.items() if inspect.unwrap(call).__module__ in own}


async def called(app: str, name: str, monkeypatch: pytest.MonkeyPatch, *, shut: bool, **headers: str) -> str:
    """What becomes of a call by the first method that the function takes."""
    gate = Gate(shut=shut)
    for place in SHOWN[app]:
        monkeypatch.setattr(place, lambda *_: gate)
    body = json.dumps(WRITERS[app].get(name)).encode()
    typed = {"Content-Type": "application/json", **headers}
    method = min(methods_of(app, name))
    sent = func.HttpRequest(method, "http://x/api/y", headers=typed, route_params={"id": ID}, body=body)
    answer = await own_functions(app)[name](sent)
    if gate.reached:
        return "reached a use case"
    return str(json.loads(answer.get_body())["title"])


def methods_of(app: str, name: str) -> set[str]:
    trigger = functions(app)[name].get_trigger()
    assert trigger is not None
    return {method.value for method in trigger.get_dict_repr().get("methods") or ()}


def by_method(app: str, *methods: str) -> set[str]:
    return {name for name in own_functions(app) if methods_of(app, name) & set(methods)}


@pytest.mark.parametrize("app", WRITERS)
async def test_every_function_that_stores_a_change_asks_before_it_stores(
    app: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = by_method(app, "POST", "PUT", "PATCH", "DELETE") - set(WRITERS[app])
    assert not missing, f"tests/unit/test_shedding.py: add {sorted(missing)} to WRITERS, each with a body"
    for name in WRITERS[app]:
        for headers in (PLAIN, KEYED) if name in CREATORS else (PLAIN,):
            assert await called(app, name, monkeypatch, shut=True, **headers) == "Service overloaded", name
            assert await called(app, name, monkeypatch, shut=False, **headers) == "reached a use case", name


@pytest.mark.parametrize("app", WRITERS)
async def test_a_caller_that_only_reads_is_let_in(app: str, monkeypatch: pytest.MonkeyPatch) -> None:
    readers = by_method(app, "GET")
    assert readers >= READERS[app]
    for name in readers:
        assert await called(app, name, monkeypatch, shut=True) == "reached a use case", name
