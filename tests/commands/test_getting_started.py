"""docs/use/getting-started.md runs from its first line to its last, as it is written.

The checkout is a copy, and the environment holds what the page installs. uv takes pip's place, since it has a cache.
"""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest

from devstack.settings import cosmos_connection, servicebus_connection
from devstack.testing import eventually
from devstack.testing.command import Command, running_command
from tests.support.paths import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

PAGE = (ROOT / "docs" / "use" / "getting-started.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
"""Each block's language and text."""
SERVER = "python -m devstack\n"
"""The block that stays in the foreground; the one after it is for a second terminal."""
INSTALLED = ("cosmos_outbox", "packages", "pyproject.toml", "README.md", "LICENSE")
"""What pip takes from a checkout."""
SETTINGS = {"COSMOS": "AccountEndpoint=http://127.0.0.1:1/;AccountKey=a2V5", "SERVICEBUS": "Endpoint=sb://b"}
LEFT_OUT = shutil.ignore_patterns("__pycache__")


class Reader:
    """Does what the page says, beside a checkout."""

    def __init__(self, folder: Path) -> None:
        self.checkout, self.service = folder / "checkout", folder / "first" / "bookings"
        self.checkout.mkdir()
        for name in INSTALLED:
            source, target = ROOT / name, self.checkout / name
            shutil.copytree(source, target, ignore=LEFT_OUT) if source.is_dir() else shutil.copy(
                source, target
            )
        self._folder, self._activate = self.checkout, ""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        given = {
            name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")
        }
        self._environment = {
            **given, "PATH": path, "UV_NO_SOURCES": "1", "PYTEST_ADDOPTS": "--simulate-seeds=2 -p no:cacheprovider",
        }  # fmt: skip

    def run(self, script: str, **environment: str) -> str:
        """What the lines print, in a shell that goes on where the one before ended."""
        uv = Path(sys.executable).parent / "uv"
        before = f'set -e; pip() {{ "{uv}" pip "$@"; }}\n{self._activate}\n'
        ended = subprocess.run(
            ["bash", "-c", before + script], cwd=self._folder, env=self._environment | environment,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, f"{script}\n{ended.stdout[-4000:]}\n{ended.stderr[-4000:]}"
        self._folder, self._activate = self.service, ". ../.venv/bin/activate"
        return ended.stdout

    def edit(self, block: str) -> None:
        """The lines with + instead of those with -, in the file that the first line names."""
        first, _, rest = block.partition("\n")
        file = self.service / first.removeprefix("--- ")
        text = file.read_text()
        for change in rest.split("...\n"):
            lines = change.splitlines(keepends=True)
            before, after = ("".join(line[1:] or "\n" for line in lines if line[0] != sign) for sign in "+-")
            assert text.count(before) == 1, f"{file.name} has no place for\n{change}"
            text = text.replace(before, after)
        file.write_text(text)

    def append(self, block: str) -> None:
        """The lines after the first, at the end of the file that it names."""
        first, _, lines = block.partition("\n")
        file = self.service / first.removeprefix("# ")
        file.write_text(f"{file.read_text()}\n{lines}" if file.exists() else lines)

    def start(self, folder: Path) -> AbstractContextManager[Command]:
        python = self.service.parent / ".venv" / "bin" / "python"
        return running_command(self.service, folder, python=str(python), PYTHONPATH="")


def settings(stack: Command) -> Mapping[str, str]:
    """The addresses, which are the sample's where no other test runs."""
    ports = [int(stack.address(name).rstrip("/").rpartition(":")[2]) for name in ("Cosmos DB", "Service Bus")]
    return {"COSMOS": cosmos_connection(ports[0]), "SERVICEBUS": servicebus_connection(ports[1])}


def test_the_page_runs_from_its_first_line_to_its_last(tmp_path: Path) -> None:
    reader, blocks = Reader(tmp_path), iter(BLOCKS)
    for language, block in blocks:
        match language:
            case "diff":
                reader.edit(block)
            case "toml" | "python":
                reader.append(block)
            case "sh" if block == SERVER:
                _, lines = next(blocks)
                with reader.start(tmp_path / "stack") as stack:
                    address = stack.address("Functions").partition("/api")[0].rstrip("/")
                    assert "http://127.0.0.1:7071" in lines
                    here = partial(
                        reader.run, lines.replace("http://127.0.0.1:7071", address), **settings(stack)
                    )
                    assert "bookings: all is well" in asyncio.run(eventually(here))
            case "sh":
                reader.run(block)
    assert {"relay", "board", "payments", "get_board"} <= deployed(reader.service / "package")
    needed = json.loads((reader.service / "deploy" / "service.json").read_text())
    assert needed["subscriptions"] == ["board"]
    assert "get_board" in needed["functions"]["callers"]


def deployed(package: Path) -> set[str]:
    """The functions that Azure finds in the folder, with a Python that has nothing else."""
    code = (
        "import function_app; print(*(each.get_function_name() for each in function_app.app.get_functions()))"
    )
    libraries = [str(package), str(package / ".python_packages" / "lib" / "site-packages")]
    ended = subprocess.run(
        [sys.executable, "-S", "-c", code],
        cwd=package,
        env={"PYTHONPATH": os.pathsep.join(libraries), **SETTINGS},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return {*ended.stdout.split()}
