"""Each command describes itself without a setting, a store or a broker: an operator in haste reads that first."""

import re
import shlex

import pytest

from cosmos_outbox.cli.main import PARTS
from tests.support.command import run_command
from tests.support.paths import ROOT


def test_the_commands_are_found() -> None:
    assert {"relay", "preflight"} <= set(PARTS)


@pytest.mark.parametrize("part", PARTS)
def test_a_command_explains_itself_without_any_environment(part: str) -> None:
    ended = run_command(part, "--help", environment={})
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith(f"usage: cosmos-outbox {part} ")


@pytest.mark.parametrize(("arguments", "code"), [([], 2), (["--help"], 0), (["pause"], 2)])
def test_the_command_lists_its_parts(arguments: list[str], code: int) -> None:
    ended = run_command(*arguments, environment={})
    assert ended.code == code
    if arguments == ["pause"]:
        assert "there is no command 'pause'" in ended.err
    else:
        assert all(
            re.search(rf"^  {part} +{re.escape(PARTS[part].does)}$", ended.out, re.MULTILINE)
            for part in PARTS
        )


@pytest.mark.parametrize("part", PARTS)
def test_a_command_is_described_in_the_documents(part: str) -> None:
    """A command that nobody can find is of no use in an outage."""
    pages = "".join(page.read_text() for page in (ROOT / "docs").rglob("*.md"))
    assert re.search(rf"cosmos-outbox {part}\b", pages)


def commands() -> list[tuple[str, str]]:
    """Each line of a code block in the operator's pages that runs a command of ours, with the page."""
    return [
        (page.name, match[1].strip())
        for page in sorted((ROOT / "docs" / "operate").glob("*.md"))
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL)
        for line in block.replace("\\\n", " ").splitlines()
        if (match := re.match(r"(?:\S*python -m cosmos_outbox|cosmos-outbox) ([^#]*)", line))
    ]


def test_lines_are_found_on_the_pages() -> None:
    assert {"recipes.md", "README.md"} <= {page for page, _ in commands()}


@pytest.mark.parametrize(("page", "line"), commands())
def test_a_line_of_a_page_is_taken_by_its_command(page: str, line: str) -> None:
    """It gets as far as the settings, of which there are none."""
    ended = run_command(*shlex.split(line), environment={})
    assert "usage:" not in ended.err, f"{page}: {ended.err}"
    assert ended.code == 2
    assert "COSMOS" in ended.err
