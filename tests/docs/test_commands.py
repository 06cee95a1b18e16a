"""Each command tells what it does without a setting, a store or a broker: who acts in haste reads that first."""

import re
import resource
import shlex
import subprocess
import sys

import pytest

from tests.support.paths import ROOT

CPU_SECONDS = 3.0
"""It takes half a second. Of the processor's time: the machine of the tests is busy."""

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
    began = cpu_seconds_of_children()
    ended = subprocess.run(
        [sys.executable, "-m", command, "--help"],
        cwd=ROOT, env={}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith(f"usage: python -m {command} ")
    assert cpu_seconds_of_children() - began < CPU_SECONDS


def cpu_seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_told_of_in_the_documents(command: str) -> None:
    """A command that nobody can find is of no use in an outage."""
    pages = "".join(page.read_text() for page in (ROOT / "docs").rglob("*.md"))
    assert re.search(rf"python -m {re.escape(command)}\b", pages)


def told() -> list[tuple[str, str]]:
    """Each line of a code block in the operator's pages that runs a command of ours, with the page."""
    return [
        (page.name, match[1].strip())
        for page in sorted((ROOT / "docs" / "operations").glob("*.md"))
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL)
        for line in block.replace("\\\n", " ").splitlines()
        if (match := re.match(r"\S*python -m (infra\.[^#]*)", line))
    ]


def test_lines_are_found_on_the_pages() -> None:
    assert {"emergency-brake.md", "erasing.md", "README.md"} <= {page for page, _ in told()}


@pytest.mark.parametrize(("page", "line"), told())
def test_a_line_of_a_page_is_taken_by_its_command(page: str, line: str) -> None:
    """It gets as far as the settings, of which there are none."""
    ended = subprocess.run(
        [sys.executable, "-m", *shlex.split(line)],
        cwd=ROOT, env={}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "usage:" not in ended.stderr, f"{page}: {ended.stderr}"
    assert ended.returncode == 2
    assert "COSMOS" in ended.stderr
