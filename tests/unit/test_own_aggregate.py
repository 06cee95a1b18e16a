"""Every aggregate has all parts that docs/own-aggregate.md lists; a forgotten part is named.

The contact service and each folder of ``examples/`` are checked in the same way.
"""

import ast
import importlib
import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import annotated_types
import pytest
from pydantic import BaseModel, Field, Strict, StringConstraints
from pydantic.fields import FieldInfo

from outbox.aggregate import Aggregate, AggregateState, input_rule
from outbox.event import DomainEvent
from tests.support.paths import ROOT
from tools.events.schemas import KINDS


@dataclass(frozen=True)
class Service:
    """Where one service keeps what. Folders and files from the checkout's root."""

    name: str
    domain: str
    """The folder of its aggregates, events and errors."""
    use_cases: str
    http: str
    bootstrap: str
    function_app: str
    messages: str
    """The page that describes its events."""
    tests: str
    names: str
    """The module that says the ``source`` of its messages."""
    home: str
    """The folder that the Functions host and devstack are started with."""

    def __str__(self) -> str:
        return self.name


CONTACTS = Service(
    "contacts", "domain", "application", "infra/contacts/http.py", "infra/bootstrap.py", "function_app.py",
    "docs/messages.md", "tests/unit", "infra/contacts/documents.py", ".",
)  # fmt: skip


def example(folder: Path) -> Service:
    home = f"examples/{folder.name}"
    return Service(
        folder.name, home, home, f"{home}/http.py", f"{home}/bootstrap.py", f"{home}/function_app.py",
        f"{home}/README.md", "tests/examples", f"{home}/bootstrap.py", home,
    )  # fmt: skip


SERVICES = [CONTACTS, *(example(file.parent) for file in sorted(ROOT.glob("examples/*/__init__.py")))]
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


def test_a_limit_is_found_wherever_it_stands_in_a_state() -> None:
    class Part(BaseModel):
        text: Annotated[str, StringConstraints(max_length=3)]

    class Whole(BaseModel):
        parts: tuple[Part, ...]
        some: Annotated[tuple[int, ...], Field(min_length=1)]
        maybe: Annotated[int, Field(ge=1)] | None = None
        free: Annotated[str, input_rule(str)]

    assert list(limits(Whole, "Whole")) == ["Whole.parts.text", "Whole.some", "Whole.maybe"]


@pytest.mark.parametrize(("service", "kind"), EVERY_AGGREGATE)
def test_the_aggregate_has_use_cases(service: Service, kind: type[Aggregate[Any]]) -> None:
    assert use_cases(service, kind), (
        f"{service.use_cases}: write use cases of {kind.__name__}, a dataclass with the field aggregates: Aggregates"
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
    application = module(service.bootstrap).Application
    hints = get_type_hints(application)
    wired = [
        field.name for field in fields(application) if hints[field.name].__name__ in use_cases(service, kind)
    ]
    assert wired, f"{service.bootstrap}: give Application a field with the use cases of {kind.__name__}"
    text = (ROOT / service.function_app).read_text()
    for name in wired:
        assert f"application().{name}" in text, (
            f"{service.function_app}: no function calls application().{name}; add the routes of {kind.__name__}"
        )


@pytest.mark.parametrize(("service", "kind"), EVERY_AGGREGATE)
def test_operators_can_replay_the_aggregates_parked_events(
    service: Service, kind: type[Aggregate[Any]]
) -> None:
    known = {names.aggregate_type for names in module(service.http).OPERATIONS}
    assert type_of(kind) in known, (
        f"{service.http}: add {kind.__name__} to OPERATIONS, or its parked events can never be replayed"
    )


@pytest.mark.parametrize("service", SERVICES, ids=str)
def test_operators_names_are_of_the_services_own_aggregates(service: Service) -> None:
    own = {type_of(kind) for kind in aggregates(service).values()}
    for names in module(service.http).OPERATIONS:
        assert names.aggregate_type in own, (
            f"{service.http}: OPERATIONS names {names.aggregate_type}: remove it"
        )
        assert names.owner == f"{names.aggregate_type}Id", (
            f"{service.http}: OPERATIONS: owner must be {names.aggregate_type}Id, as in the events"
        )


@pytest.mark.parametrize("service", SERVICES, ids=str)
def test_every_error_of_the_domain_has_a_status(service: Service) -> None:
    every = classes(service.domain, Exception).values()
    raised = [kind for kind in every if not kind.__subclasses__()]
    known = [kind for kind, _, _ in module(service.http).answering._status_of]
    for kind in raised:
        assert kind in known, f"{service.http}: give {kind.__name__} a status in answering"


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
    assert kind in KINDS, (
        f"tools/events/schemas.py: add {kind.__name__} to KINDS, a message of it to tools/events/samples.py, and run "
        "python -m tools.events"
    )


@pytest.mark.parametrize("service", SERVICES, ids=str)
def test_a_service_has_what_it_needs_to_run(service: Service) -> None:
    for name in TO_RUN:
        assert (ROOT / service.home / name).is_file(), (
            f"{service.home}/{name} is missing: copy that of examples/orders"
        )
    known, given = settings(CONTACTS), settings(service)
    assert not known.keys() - given.keys(), (
        f"{service.home}/local.settings.sample.json: add {sorted(known.keys() - given.keys())}; "
        "a setting that is missing has the contact service's name"
    )
    names = re.findall(r'^(\w+) = "(.*)"$', (ROOT / service.home / "devstack.toml").read_text(), re.MULTILINE)
    for name, value in names:
        assert given.get(name, value) == value, (
            f"{service.home}: {name} is {value} in devstack.toml and {given[name]} in local.settings.sample.json"
        )


@pytest.mark.parametrize(
    "setting", [("COSMOS_DATABASE", "COSMOS_CONTAINER"), ("SERVICEBUS_TOPIC",)], ids=" and ".join
)
def test_no_two_services_share_a_container_or_a_topic(setting: tuple[str, ...]) -> None:
    owners: dict[tuple[str | None, ...], Service] = {}
    for service in SERVICES:
        value = tuple(settings(service).get(name) for name in setting)
        other = owners.setdefault(value, service)
        assert other is service, (
            f"local.settings.sample.json of {service} and of {other}: {' and '.join(setting)} are the same; "
            "name others in the newer one"
        )


def test_no_two_services_send_messages_with_one_source() -> None:
    owners: dict[str, Service] = {}
    for service in SERVICES:
        [source] = re.findall(r'source="([^"]+)"', (ROOT / service.names).read_text())
        other = owners.setdefault(source, service)
        assert other is service, (
            f"{service.names} and {other.names} have the same source={source!r}; give the newer one its own"
        )


def settings(service: Service) -> dict[str, str]:
    sample: dict[str, str] = json.loads((ROOT / service.home / TO_RUN[-1]).read_text())["Values"]
    return sample


def test_the_page_names_every_place_that_is_looked_at() -> None:
    page = (ROOT / "docs" / "own-aggregate.md").read_text()
    for place in (
        "domain/", "application/", "infra/contacts/http.py", "infra/bootstrap.py", "function_app.py",
        "deploy/main.bicep", "docs/messages.md", "docs/api.md", "docs/errors.md", "tests/examples/", "tests/unit/",
    ):  # fmt: skip
        assert f"`{place}" in page, f"docs/own-aggregate.md does not name {place}"
