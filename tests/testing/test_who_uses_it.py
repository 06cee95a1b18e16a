"""The tests of the examples, and those that ``init`` writes, use what a stranger has: the kit, the face, themselves."""

from collections.abc import Iterator

import pytest

from cosmos_outbox.cli import init
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
