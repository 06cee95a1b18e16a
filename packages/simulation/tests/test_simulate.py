"""A bug in an example is found by the example's own test, which says how to run it again."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.paths import ROOT, python_path


@dataclass(frozen=True)
class Planted:
    """A text of an example, and what stands in its place."""

    file: str
    right: str
    wrong: str
    found: str
    """What the test then says."""


PLANTED = {
    "orders: the board counts lines, not pieces": Planted(
        "orders/board.py",
        "update={\"total\": entry.total + added}",
        "update={\"total\": entry.total + 1}",
        "projection differs: order-board: OrderLineAddedEvent",
    ),
    "orders: a gift that is like one before it is taken for a repetition": Planted(
        "orders/service.py",
        "    if order.state.shipped_at is None:",
        '    if not order.state.shipped_at and Line(**event.data["line"]) not in order.state.lines:',
        "at rest: order",
    ),
    "people: no event has a new address": Planted(
        "fastapi/person.py", '"email": "PersonEmailChangedEvent", ', "", "command fails"
    ),
    "checkout: an order that is not paid stays as it is": Planted(
        "checkout/order.py", 'self.cancel("not paid in time", at=at)', "return", "still due: order"
    ),
    "mailing list: a new name is not taken": Planted(
        "subscriber/service.py", 'update={"name": event.data["name"]}', "update={}", "projection differs"
    ),
    "people: a property that is stored has another name by now": Planted(
        "fastapi/person.py", "    deleted: bool = False\n", "    deleted: bool = False\n    nick: str\n",
        "stored form: person-",
    ),
}  # fmt: skip


def copied(folder: Path, planted: Planted | None = None) -> Path:
    """The examples, one of them with a bug, where they are imported from first."""
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    if planted is not None:
        file = folder / "examples" / planted.file
        text = file.read_text()
        assert text.count(planted.right) == 1, f"{planted.file} has another text by now"
        file.write_text(text.replace(planted.right, planted.wrong))
    return folder


def run(folder: Path, test: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-c", "/dev/null",
        "--rootdir", str(folder), f"examples/{test}", *options,
    ]  # fmt: skip
    path = f"{folder}{os.pathsep}{python_path()}"
    # To import the plugins takes half a second, and these tests need none.
    own = {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    given: Mapping[str, str] = os.environ | own | environment
    given = {name: value for name, value in given.items() if name != "PYTEST_CURRENT_TEST"}
    return subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True, check=False)


TESTS = {
    "subscriber": "subscriber/tests/test_mailing_list_simulated.py",
    "orders": "orders/tests/test_orders_simulated.py",
    "checkout": "checkout/tests/test_checkout_simulated.py",
    "fastapi": "fastapi/tests/test_people_simulated.py",
}


@pytest.mark.long  # test_simulate_elsewhere sees an event that says something else than its document
@pytest.mark.parametrize("name", PLANTED)
def test_a_bug_in_an_example_is_found(name: str, tmp_path: Path) -> None:
    planted = PLANTED[name]
    result = run(copied(tmp_path, planted), TESTS[planted.file.partition("/")[0]])
    assert result.returncode == 1, result.stdout
    assert planted.found in result.stdout


@pytest.mark.long  # runs the example's simulation twice
def test_the_forms_that_a_run_writes_are_those_that_the_next_one_reads(tmp_path: Path) -> None:
    """What the library keeps for itself, such as how far a walk is, is no form of the service."""
    folder = copied(tmp_path)
    shutil.rmtree(folder / "examples/orders/tests/forms")
    options = ("-p", "outbox_simulation.plugin", "--simulate-seeds=5")
    for more in (["--simulate-write-forms"], []):
        result = run(folder, TESTS["orders"], *options, *more)
        assert result.returncode == 0, result.stdout
