"""Each command tells what it does without a setting, a store or a broker: who acts in haste reads that first."""

import re
import subprocess
import sys
import time

import pytest

from tests.support.paths import ROOT

SECONDS = 10.0
"""Far above the half second that it takes: the machine of the tests is busy."""

COMMANDS = sorted(
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
    for folder in ("infra", "examples")
    for file in (ROOT / folder).rglob("*.py")
    if 'if __name__ == "__main__":\n    sys.exit(' in file.read_text() or file.name == "__main__.py"
)


def test_the_commands_are_found() -> None:
    assert {"infra.relay_worker", "infra.subscriber_worker", "infra.preflight"} <= set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_explains_itself_without_any_environment(command: str) -> None:
    began = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-m", command, "--help"],
        cwd=ROOT, env={}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith(f"usage: python -m {command} ")
    assert time.monotonic() - began < SECONDS


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_told_of_in_the_documents(command: str) -> None:
    """A command that nobody can find is of no use in an outage."""
    pages = "".join(page.read_text() for page in (ROOT / "docs").rglob("*.md"))
    assert re.search(rf"python -m {re.escape(command)}\b", pages)
