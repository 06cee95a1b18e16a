"""Every aggregate has all parts that docs/own-aggregate.md lists; a forgotten part is named.

The contact service and each folder of ``examples/`` are checked in the same way.
"""

import ast
import importlib
import inspect
import re
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from outbox.aggregate import Aggregate, AggregateState
from outbox.event import DomainEvent
from tests.support.paths import ROOT


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

    def __str__(self) -> str:
        return self.name


CONTACTS = Service(
    "contacts", "domain", "application", "infra/contacts/http.py", "infra/bootstrap.py", "function_app.py",
    "docs/messages.md", "tests/unit",
)  # fmt: skip


def example(folder: Path) -> Service:
    home = f"examples/{folder.name}"
    return Service(
        folder.name, home, home, f"{home}/http.py", f"{home}/bootstrap.py", f"{home}/function_app.py",
        f"{home}/README.md", "tests/examples",
    )  # fmt: skip


SERVICES = [CONTACTS, *(example(file.parent) for file in sorted(ROOT.glob("examples/*/function_app.py")))]


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


def events(service: Service) -> dict[str, type[DomainEvent]]:
    """Those with an action of their own; the others are bases."""
    every = classes(service.domain, DomainEvent)
    return {name: one for name, one in every.items() if one.model_fields["action"].annotation is not str}


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
    assert aggregates(service)
    assert events(service)


def test_no_two_aggregates_have_one_type() -> None:
    types = [kind.aggregate_type for service in SERVICES for kind in aggregates(service).values()]
    assert len(set(types)) == len(types)


@pytest.mark.parametrize(("service", "kind"), EVERY_AGGREGATE)
def test_the_aggregate_names_its_type_and_its_state(service: Service, kind: type[Aggregate[Any]]) -> None:
    assert re.fullmatch(r"[a-z][a-zA-Z0-9]*", kind.aggregate_type), "aggregate_type is a name such as order"
    assert issubclass(kind.state_type, AggregateState), "state_type is the model that is stored"


@pytest.mark.parametrize(("service", "kind"), EVERY_AGGREGATE)
def test_the_aggregate_has_use_cases(service: Service, kind: type[Aggregate[Any]]) -> None:
    assert use_cases(service, kind), f"no module of {service.use_cases} makes use cases of {kind.__name__}"


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
    assert wired, f"{service.bootstrap}: Application has no field with the use cases of {kind.__name__}"
    text = (ROOT / service.function_app).read_text()
    for name in wired:
        assert f"application().{name}" in text, (
            f"{service.function_app}: no function calls application().{name}"
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
    assert get_origin(action.annotation) is Literal, "an action is one text: Literal"
    assert get_args(action.annotation) == (kind.__name__,) == (action.default,)
    owners = {f"{one.aggregate_type}_id" for one in aggregates(service).values()}
    assert owners & set(kind.model_fields), f"{kind.__name__} needs the id of its aggregate: one of {owners}"


@pytest.mark.parametrize(("service", "kind"), EVERY_EVENT)
def test_an_event_is_described_and_tested(service: Service, kind: type[DomainEvent]) -> None:
    page = ROOT / service.messages
    assert kind.__name__ in page.read_text(), f"{service.messages} does not describe {kind.__name__}"
    texts = [file.read_text() for file in (ROOT / service.tests).glob("test_*.py") if file != Path(__file__)]
    assert any(kind.__name__ in text for text in texts), f"no test in {service.tests} expects {kind.__name__}"


def test_the_page_names_every_place_that_is_looked_at() -> None:
    page = (ROOT / "docs" / "own-aggregate.md").read_text()
    for place in (
        "domain/", "application/", "infra/contacts/http.py", "infra/bootstrap.py", "function_app.py",
        "deploy/main.bicep", "docs/messages.md", "tests/unit/",
    ):  # fmt: skip
        assert f"`{place}" in page, f"docs/own-aggregate.md does not name {place}"
