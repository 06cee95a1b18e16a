"""The tests of the examples, and those that ``init`` writes, use what a stranger has: the kit, the face, themselves."""

import importlib
from collections.abc import Iterator

import pytest

from cosmos_outbox import Service
from cosmos_outbox.cli import init
from cosmos_outbox.preflight.plan import needed
from cosmos_outbox.settings.transports import ServiceBus
from devstack.app_file import read_app
from devstack.local_settings import read_values, sample_file
from tests.support.paths import ROOT
from tests.unit.test_face import beside_the_face


def copied() -> Iterator[tuple[str, str]]:
    """Each test that a stranger may copy, with its text."""
    for file in sorted(ROOT.glob("examples/*/tests/**/*.py")):
        yield file.relative_to(ROOT).as_posix(), file.read_text()
    for kind in init.KINDS:
        for place, text in init.files(kind, init.Words("bookings", "Booking")):
            if place.parts[0] == "tests" and place.suffix == ".py":
                yield f"init --kind {kind}: {place}", text


TESTS = dict(copied())


@pytest.mark.parametrize("place", TESTS)
def test_a_test_needs_the_kit_and_the_face_and_nothing_deeper(place: str) -> None:
    assert beside_the_face(TESTS[place]) == []
    for ours in ("devstack", "tests", "tools", "infra", "application", "domain"):
        for line in TESTS[place].splitlines():
            assert not line.strip().startswith((f"import {ours}", f"from {ours}")), line


def test_every_example_has_tests_of_its_own() -> None:
    examples = {file.parent.name for file in ROOT.glob("examples/*/__init__.py")}
    assert examples == {place.split("/")[1] for place in TESTS if place.startswith("examples/")}


@pytest.mark.parametrize(
    "folder",
    [file.parent.relative_to(ROOT).as_posix() for file in sorted(ROOT.glob("examples/*/devstack.toml"))],
)
def test_the_local_azure_of_an_example_has_what_its_service_needs(folder: str) -> None:
    """Its tests run on what the service declares; a reader runs it on its devstack.toml."""
    [home] = [
        file.stem for file in (ROOT / folder).glob("*.py") if "\nservice = Service(" in file.read_text()
    ]
    service = importlib.import_module(f"{folder.replace('/', '.')}.{home}").service
    assert isinstance(service, Service)
    given = read_values(sample_file(ROOT / folder))
    wanted = service.settings(given)
    found = read_app(ROOT / folder, given)
    containers = {(each.database, each.name): each.composite_indexes for each in found.cosmos.containers}
    assert containers == {
        (wanted.cosmos_database, need.name): [list(each) for each in need.composite]
        for need in needed(wanted, service)
    }
    topics = [wanted.transport.topic] if isinstance(wanted.transport, ServiceBus) else []
    assert [each.name for each in found.servicebus.topics] == topics
    assert all(each.requires_duplicate_detection for each in found.servicebus.topics)
    assert {wanted.name(each.subscription) for each in service.subscribers} <= {
        each.name
        for topic in found.servicebus.topics
        for each in topic.subscriptions
        if each.requires_session
    }
