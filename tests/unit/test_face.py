"""The public face is small, and it is enough: examples and pages import nothing else of it.

The face is computed from ``__all__``: the root's, and that of each module beside the root that has one.
"""

import ast
import importlib
from collections.abc import Iterator

import pytest

import cosmos_outbox
from cosmos_outbox.cli import init
from tests.support.paths import ROOT
from tests.unit.test_architecture import faces, files, modules

MOST_NAMES = 30
USERS = ("examples", "domain", "application")


def programs() -> Iterator[tuple[str, str]]:
    """What shows users how the library is used: each file's name and its text."""
    for user in USERS:
        for file in files(user):
            yield file.relative_to(ROOT).as_posix(), file.read_text()
    for kind in init.KINDS:
        for written, text in init.files(kind, init.Words("bookings", "Booking")):
            if written.suffix == ".py":
                yield f"init --kind {kind}: {written}", text


PROGRAMS = dict(programs())


def beside_the_face(text: str) -> list[str]:
    """What a program imports of the library that is not public."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [each.name for each in node.names if each.name not in faces()]
        elif isinstance(node, ast.ImportFrom):
            home = node.module or ""
            public = faces().get(home, {}).keys() | {
                each.removeprefix(f"{home}.") for each in faces() if each.startswith(f"{home}.")
            }
            found += [f"{home}.{each.name}" for each in node.names if each.name not in public]
    return [name for name in found if f"{name}.".startswith("cosmos_outbox.")]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_imports_nothing_of_the_library_but_its_face(program: str) -> None:
    assert not beside_the_face(PROGRAMS[program])


def test_the_root_has_few_names() -> None:
    assert len(cosmos_outbox.__all__) <= MOST_NAMES, "a name that is added takes the place of another"


def test_the_root_lists_which_modules_are_public() -> None:
    reported = cosmos_outbox.__doc__ or ""
    assert [name for name in faces() if f"``{name}``" not in reported and name != "cosmos_outbox"] == []


@pytest.mark.parametrize("name", sorted(faces()))
def test_a_name_is_imported_from_where_a_type_checker_finds_it(name: str) -> None:
    face = importlib.import_module(name)
    assert faces()[name].keys() <= set(dir(face))
    for exported, home in faces()[name].items():
        found = getattr(face, exported)
        if home != name:
            assert found is getattr(importlib.import_module(home), exported)


@pytest.mark.parametrize("name", sorted(faces()))
def test_a_name_that_is_not_there_is_an_error_to_a_type_checker(name: str) -> None:
    """A module that has ``__getattr__`` has every name, as far as a type checker knows."""
    defined = ast.parse(modules()[name].read_text()).body
    assert not [
        each.name for each in defined if isinstance(each, ast.FunctionDef) and each.name == "__getattr__"
    ]


def test_the_picture_of_the_errors_shows_each_and_under_its_base() -> None:
    from cosmos_outbox import errors  # noqa: PLC0415 - named here alone

    above: dict[int, str] = {}
    shown = {}
    for line in (errors.__doc__ or "").splitlines():
        indent = len(line) - len(line.lstrip(" │├└─"))
        name = line[indent:].partition(" ")[0]
        if name in errors.__all__:
            above[indent] = name
            bases = [above[each] for each in sorted(above) if each < indent]
            shown[name] = bases[-1] if bases else "Exception"
            above = {each: kept for each, kept in above.items() if each <= indent}
    assert shown == {name: getattr(errors, name).__base__.__name__ for name in errors.__all__}
