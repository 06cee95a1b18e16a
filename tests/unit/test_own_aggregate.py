"""Every aggregate has all parts that docs/use/own-aggregate.md lists; a forgotten part is named.

The contact service and each function app of ``examples/`` are checked in the same way. What ``cosmos-outbox init``
writes has tests of its own: ``tests/commands/test_init.py``.
"""

import ast
import importlib
import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args, get_origin

import annotated_types
import pytest
from pydantic import BaseModel, Strict, StringConstraints
from pydantic.fields import FieldInfo

from cosmos_outbox.contracts.schemas import events_of
from cosmos_outbox.http.answering import Answering
from cosmos_outbox.http.resource import Resource
from cosmos_outbox.outbox.aggregate import Aggregate, AggregateState
from cosmos_outbox.outbox.event import DomainEvent
from cosmos_outbox.preflight.plan import needed
from cosmos_outbox.service import Service as Declared
from cosmos_outbox.settings.transports import StorageQueue, servicebus_of
from devstack.settings import read_settings
from infra.bootstrap import service as contact_service
from tests.support.paths import ROOT


@dataclass(frozen=True)
class Service:
    """Where one service keeps what. Folders and files from the checkout's root."""

    name: str
    domain: str
    """The folder of its aggregates, events and errors."""
    use_cases: str
    http: str
    service: str
    """The module that declares the service and wires its use cases."""
    function_app: str
    messages: str
    """The page that describes its events."""
    tests: str
    home: str
    """The folder that the Functions host and devstack are started with."""
    unseen: tuple[str, ...] = ()
    """Errors that no caller can meet: of what a queue starts, say."""

    def __str__(self) -> str:
        return self.name


CONTACTS = Service(
    "contacts", "domain", "application", "infra/contacts_http.py", "infra/bootstrap.py", "function_app.py",
    "docs/use/messages.md", "tests/unit", ".",
)  # fmt: skip


UNSEEN = {"imports": ("FileGone", "NotReadable", "NotTaken", "AttemptOver")}


def example(folder: Path) -> Service:
    home = f"examples/{folder.name}"
    return Service(
        folder.name, home, home, f"{home}/http.py", f"{home}/service.py", f"{home}/function_app.py",
        f"{home}/README.md", f"{home}/tests", home, UNSEEN.get(folder.name, ()),
    )  # fmt: skip


SERVICES = [CONTACTS, *(example(file.parent) for file in sorted(ROOT.glob("examples/*/function_app.py")))]
TO_RUN = ("function_app.py", "host.json", "README.md", "devstack.toml", "local.settings.sample.json")


def module(file: str) -> ModuleType:
    return importlib.import_module(file.removesuffix(".py").replace("/", "."))


def classes(folder: str, base: type) -> dict[str, type[Any]]:
    """The subclasses of ``base`` that are written in a folder, with the file of each."""
    written = [module(file.relative_to(ROOT).as_posix()) for file in sorted((ROOT / folder).glob("*.py"))]
    return {
        name: one
        for home in written
        for name, one in inspect.getmembers(home, inspect.isclass)
        if one.__module__ == home.__name__ and issubclass(one, base)
    }


def aggregates(service: Service) -> dict[str, type[Aggregate[Any]]]:
    return classes(service.domain, Aggregate)


def type_of(kind: type[Aggregate[Any]]) -> str:
    return str(getattr(kind, "aggregate_type", ""))


def events(service: Service) -> dict[str, type[DomainEvent]]:
    """Those without subclasses; the others are bases."""
    every = classes(service.domain, DomainEvent)
    return {name: one for name, one in every.items() if not one.__subclasses__()}


def imported(file: Path) -> set[str]:
    nodes = ast.walk(ast.parse(file.read_text()))
    return {name.name for node in nodes if isinstance(node, ast.ImportFrom) for name in node.names}


EVERY_AGGREGATE = [
    pytest.param(service, kind, id=kind.__name__)
    for service in SERVICES
    for kind in aggregates(service).values()
]
EVERY_EVENT = [
    pytest.param(service, kind, id=name) for service in SERVICES for name, kind in events(service).items()
]


@pytest.mark.parametrize("service", SERVICES, ids=str)
def test_a_service_has_an_aggregate_and_events(service: Service) -> None:
    assert aggregates(service), f"{service.domain} has no class that is an Aggregate"
    assert events(service), f"{service.domain} has no class that is a DomainEvent"


def test_no_two_aggregates_have_one_type() -> None:
    every = [(service, kind) for service in SERVICES for kind in aggregates(service).values()]
    owners: dict[str, str] = {}
    for service, kind in every:
        other = owners.setdefault(type_of(kind), kind.__name__)
        assert other == kind.__name__, (
            f"{service.domain}: {kind.__name__} has the aggregate_type of {other}; give the newer one its own"
        )


@pytest.mark.parametrize(("service", "kind"), EVERY_AGGREGATE)
def test_the_aggregate_names_its_type_and_its_state(service: Service, kind: type[Aggregate[Any]]) -> None:
    where = f"{service.domain}: {kind.__name__}"
    assert re.fullmatch(r"[a-z][a-zA-Z0-9]*", type_of(kind)), (
        f"{where}: set aggregate_type to a name such as order"
    )
    state = getattr(kind, "state_type", None)
    assert inspect.isclass(state), f"{where}: set state_type to the model that is stored"
    assert issubclass(state, AggregateState), f"{where}: {state.__name__} must be an AggregateState"


LIMITS = annotated_types.BaseMetadata, annotated_types.GroupedMetadata, StringConstraints


def is_limit(metadata: object) -> bool:
    return isinstance(metadata, LIMITS) and not isinstance(metadata, Strict)


def limits(model: Any, place: str) -> Iterator[str]:
    """The fields of a model, and of those in it, whose limits pydantic itself holds."""
    if inspect.isclass(model) and issubclass(model, BaseModel):
        for name, field in model.model_fields.items():
            if any(map(is_limit, field.metadata)):
                yield f"{place}.{name}"
            yield from limits(field.annotation, f"{place}.{name}")
        return
    for part in get_args(model):
        if isinstance(part, FieldInfo):
            if any(map(is_limit, part.metadata)):
                yield place
        elif is_limit(part):
            yield place
        else:
            yield from limits(part, place)


@pytest.mark.parametrize(("service", "kind"), EVERY_AGGREGATE)
def test_a_rule_for_callers_makes_no_stored_state_unreadable(
    service: Service, kind: type[Aggregate[Any]]
) -> None:
    found = list(limits(kind.state_type, kind.state_type.__name__))
    assert not found, f"{service.domain}: give {found} an input_rule, which lets what is stored pass"


def resources(service: Service) -> list[Resource[Any, Any]]:
    """What a service declares; where it declares nothing, it has use cases."""
    return [each for each in vars(module(service.http)).values() if isinstance(each, Resource)]


@pytest.mark.parametrize(("service", "kind"), EVERY_AGGREGATE)
def test_the_aggregate_has_use_cases_or_is_a_resource(service: Service, kind: type[Aggregate[Any]]) -> None:
    declared = [each for each in resources(service) if each.kind is kind]
    assert declared or use_cases(service, kind), (
        f"{service.http}: declare a Resource of {kind.__name__}, or write use cases in {service.use_cases}, a "
        "dataclass with the field aggregates: Aggregates"
    )


def use_cases(service: Service, kind: type[Aggregate[Any]]) -> list[str]:
    """The classes whose methods work on the aggregate: those that have an ``Aggregates``."""
    return [
        name
        for file in sorted((ROOT / service.use_cases).glob("*.py"))
        if {kind.__name__, "Aggregates"} <= imported(file)
        for name, one in inspect.getmembers(module(file.relative_to(ROOT).as_posix()), inspect.isclass)
        if "aggregates" in getattr(one, "__dataclass_fields__", {})
    ]


@pytest.mark.parametrize(("service", "kind"), EVERY_AGGREGATE)
def test_the_use_cases_are_wired_and_called(service: Service, kind: type[Aggregate[Any]]) -> None:
    text = (ROOT / service.function_app).read_text()
    if resources(service):
        assert "resources=[" in text, f"{service.function_app}: give the resources to functions.app"
        return
    given = {
        node.name
        for node in ast.walk(ast.parse((ROOT / service.service).read_text()))
        if isinstance(node, ast.FunctionDef)
        and isinstance(node.returns, ast.Name)
        and node.returns.id in use_cases(service, kind)
    }
    assert given, f"{service.service}: write a function that returns the use cases of {kind.__name__}"
    assert any(re.search(rf"\b{name}\(\)\.|\bapplication\(\)\.{name}\b", text) for name in given), (
        f"{service.function_app}: no function calls {' or '.join(given)}; add the routes of {kind.__name__}"
    )


def declared(service: Service) -> Declared:
    found = module(service.service).service
    assert isinstance(found, Declared)
    return found


@pytest.mark.parametrize("service", SERVICES, ids=str)
def test_the_service_declares_its_own_aggregates_and_no_others(service: Service) -> None:
    """An aggregate that is not declared has no operators' calls: its parked events can never be replayed."""
    assert {*declared(service).aggregates} == {*aggregates(service).values()}, (
        f"{service.service}: name the aggregates of {service.domain} in aggregates=[...]"
    )


@pytest.mark.parametrize("service", SERVICES, ids=str)
def test_every_error_of_the_domain_has_a_status(service: Service) -> None:
    every = classes(service.domain, Exception).values()
    raised = [kind for kind in every if not kind.__subclasses__()]
    by_hand = getattr(module(service.http), "answering", Answering())._status_of
    known = {kind for kind, _, _ in by_hand}.union(*(each.errors for each in resources(service)))
    for kind in raised:
        if kind.__name__ in service.unseen:
            continue
        assert kind in known, f"{service.http}: give {kind.__name__} a status"


@pytest.mark.parametrize(("service", "kind"), EVERY_EVENT)
def test_an_event_is_named_by_its_class_and_names_its_aggregate(
    service: Service, kind: type[DomainEvent]
) -> None:
    action = kind.model_fields["action"]
    right = f'action: Literal["{kind.__name__}"] = "{kind.__name__}"'
    named = get_origin(action.annotation) is Literal and get_args(action.annotation) == (kind.__name__,)
    assert named, f"{service.domain}: {kind.__name__} needs {right}"
    assert action.default == kind.__name__, f"{service.domain}: {kind.__name__} needs {right}"
    owners = {f"{type_of(one)}_id" for one in aggregates(service).values()}
    assert owners & set(kind.model_fields), f"{kind.__name__} needs the id of its aggregate: one of {owners}"


@pytest.mark.parametrize(("service", "kind"), EVERY_EVENT)
def test_an_event_is_described_and_tested(service: Service, kind: type[DomainEvent]) -> None:
    page = ROOT / service.messages
    assert page.is_file(), f"{service.messages} is missing: write a page that describes the events"
    assert kind.__name__ in page.read_text(), (
        f"{service.messages}: add a line that says when {kind.__name__} is raised"
    )
    texts = [file.read_text() for file in (ROOT / service.tests).glob("test_*.py") if file != Path(__file__)]
    assert any(kind.__name__ in text for text in texts), (
        f"{service.tests}: write a test that expects {kind.__name__}"
    )


@pytest.mark.parametrize("kind", events(CONTACTS).values(), ids=lambda kind: kind.__name__)
def test_an_event_of_the_contact_service_is_in_the_contract(kind: type[DomainEvent]) -> None:
    """Its messages name a schema, which must be there to be published."""
    assert kind in events_of(contact_service), (
        f"infra/bootstrap.py: add {kind.__name__} to the events of the service, a message of it to "
        "tools/events/samples.py, and run python -m tools.events"
    )


@pytest.mark.parametrize("service", SERVICES, ids=str)
def test_a_service_has_what_it_needs_to_run(service: Service) -> None:
    for name in TO_RUN:
        assert (ROOT / service.home / name).is_file(), (
            f"{service.home}/{name} is missing: cosmos-outbox init writes one"
        )
    given = settings(service)
    declared(service).settings(given)
    names = re.findall(r'^(\w+) = "(.*)"$', (ROOT / service.home / "devstack.toml").read_text(), re.MULTILINE)
    for name, value in names:
        assert given.get(name, value) == value, (
            f"{service.home}: {name} is {value} in devstack.toml and {given[name]} in local.settings.sample.json"
        )


@pytest.mark.parametrize("service", SERVICES, ids=str)
def test_the_local_stack_makes_all_that_a_service_names(service: Service) -> None:
    """What is named in the declaration alone, and forgotten in devstack.toml, is a 404 at the first call."""
    needed_settings = declared(service).settings(settings(service))
    app = read_settings(settings(service), ROOT / service.home).app
    containers = {(each.database, each.name): each.composite_indexes for each in app.cosmos.containers}
    for need in needed(needed_settings, declared(service)):
        made = containers.get((needed_settings.cosmos_database, need.name))
        assert made == [list(each) for each in need.composite], f"{service.home}/devstack.toml: {need.name}"
    if isinstance(needed_settings.transport, StorageQueue):
        assert {*needed_settings.transport.queues} <= {*app.storage.queues}, f"{service.home}/devstack.toml"
        return
    [topic] = [
        each for each in app.servicebus.topics if each.name == servicebus_of(needed_settings.transport).topic
    ]
    assert topic.requires_duplicate_detection
    subscriptions = {each.name for each in topic.subscriptions if each.requires_session}
    named = {needed_settings.name(each.subscription) for each in declared(service).subscribers}
    assert named <= subscriptions, f"{service.home}/devstack.toml: {sorted(named - subscriptions)}"


@pytest.mark.parametrize("names", [("database", "container"), ("topic",)], ids=" and ".join)
def test_no_two_services_share_a_container_or_a_topic(names: tuple[str, ...]) -> None:
    owners: dict[tuple[str, ...], Service] = {}
    for service in SERVICES:
        called, given = declared(service).names, settings(service)
        resolved = {**called.resolve(given), "topic": called.topic_named.resolve(given)}
        other = owners.setdefault(tuple(resolved[name] for name in names), service)
        assert other is service, f"{service.service} and {other.service}: {' and '.join(names)} are the same"


def test_no_two_services_send_messages_with_one_source() -> None:
    owners: dict[str, Service] = {}
    for service in SERVICES:
        source = declared(service).wire_names.source
        other = owners.setdefault(source, service)
        assert other is service, f"{service.service} and {other.service} are both named {source!r}"


def settings(service: Service) -> dict[str, str]:
    sample: dict[str, str] = json.loads((ROOT / service.home / TO_RUN[-1]).read_text())["Values"]
    return sample


def test_the_page_names_every_place_that_is_looked_at() -> None:
    page = (ROOT / "docs" / "use" / "own-aggregate.md").read_text()
    for place in (
        "domain/", "application/", "infra/contacts_http.py", "infra/bootstrap.py", "function_app.py",
        "deploy/service.json", "docs/use/messages.md", "docs/use/api.md", "docs/internals/errors.md",
        "examples/orders/tests/", "tests/unit/",
    ):  # fmt: skip
        assert f"`{place}" in page, f"docs/use/own-aggregate.md does not name {place}"
