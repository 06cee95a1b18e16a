"""A late module is imported at its first use, once, and is then like any other."""

import subprocess
import sys
from pathlib import Path

import pytest

from infra.late import late
from tests.support.paths import ROOT

PROGRAM = """
import sys
from infra.late import late
module = late("shop.prices")
print("made")
import shop
from shop import prices
print(shop.prices is module, prices is module, sys.modules["shop.prices"] is module)
print(prices.APPLE)
print(late("shop.prices") is module, prices.APPLE)
"""


def test_a_module_runs_when_something_in_it_is_asked_for(tmp_path: Path) -> None:
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "prices.py").write_text('print("runs")\nAPPLE = 3\n')
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["made", "True True True", "runs", "3", "True 3"]


def test_a_module_that_is_there_already_is_that_one() -> None:
    assert late("tests.support.paths") is sys.modules["tests.support.paths"]


def test_a_module_that_does_not_exist_is_told_at_once() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        late("infra.no_such_module")
