"""Each shell block of a README and of docs/use is run by a test as it stands, or its commands are looked up here."""

import argparse
import importlib.util
import itertools
import json
import re
import shlex
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from cosmos_outbox.cli import init
from tests.support.command import run_command
from tests.support.paths import ROOT

READMES = [ROOT / "README.md", *ROOT.glob("docs/**/README.md"), *ROOT.glob("*/*/README.md")]
PAGES = {
    page.relative_to(ROOT).as_posix(): blocks
    for page in sorted({*READMES, *ROOT.glob("docs/use/**/*.md")})
    if (
        blocks := re.findall(
            r"^```(?:sh|bash|console)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL
        )
    )
}
"""The blocks of each page that has some."""
RUN = {
    "README.md": "tests/e2e/test_api.py",
    "docs/use/getting-started.md": "tests/commands/test_getting_started.py",
    "docs/use/transports.md": "tests/support/partner.py",
}
"""The pages whose blocks a test runs as they stand, with its file. tests/commands/test_run.py runs ``make run``."""
SERVES = "it serves until Ctrl-C: tests of the example start the same program on free ports"
NOT_RUN = {
    "docs/operate/README.md": "it needs a service with events; tests/docs/test_commands.py tries each command",
    "docs/use/README.md": "four installations take a minute; tests/commands/test_wheels.py installs these extras",
    "examples/checkout/README.md": SERVES,
    "examples/fastapi/README.md": SERVES,
    "examples/imports/README.md": SERVES,
    "examples/orders/README.md": SERVES,
    "examples/receiver/README.md": SERVES,
    "examples/subscriber/README.md": SERVES,
    "packages/devstack/README.md": "tests/commands/test_wheels.py installs it from its wheel, and runs it",
    "packages/simulation/README.md": "a thousand runs take minutes; packages/simulation/tests run the same command",
}
"""The others, each with the reason."""


def test_each_page_is_run_or_has_a_reason_why_not() -> None:
    assert {*RUN, *NOT_RUN} == {*PAGES}
    assert not {*RUN} & {*NOT_RUN}
    for page, test in RUN.items():
        *folders, name = Path(page).parts
        text = (ROOT / test).read_text()
        assert all(f'"{each}"' in text for each in (*folders, name)), f"{test} does not read {page}"


_QUOTED = r"""'[^']*'|"(?:\\.|[^"])*\""""


def commands(block: str) -> list[list[str]]:
    """The words of each command, without comments and what is set before it."""
    lines = re.sub(rf"^((?:{_QUOTED}|[^'\"#\n]|\S#)*?)(?<!\S)#.*$", r"\1", block, flags=re.MULTILINE)
    lexer = shlex.shlex(lines.replace("\\\n", " "), posix=True, punctuation_chars=";&|\n")
    lexer.whitespace, lexer.commenters, lexer.whitespace_split = " \t", "", True
    found: list[list[str]] = [[]]
    for word in lexer:
        if re.fullmatch(r"[;&|\n]+", word):
            found.append([])
        elif found[-1] or not re.match(r"[A-Z_]+=", word):
            found[-1].append(word)
    return [each for each in found if each]


def make(*words: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for word in words:
        name, assigned, value = word.partition("=")
        assert re.search(rf"\b{name}\b" if assigned else rf"^{name}:", makefile, re.MULTILINE), word
        assert name != "APP" or (ROOT / value / "function_app.py").exists(), word


def pip(action: str, *words: str) -> None:
    assert action == "install"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    of_ours = {re.split(r"\W", each)[0] for lines in extras.values() for each in lines}
    for word in words:
        folder, _, named = word.rstrip("]").partition("[")
        if folder.startswith("."):
            assert (ROOT / folder / "pyproject.toml").exists(), word
            assert {*filter(None, named.split(","))} <= {*extras}, word
        else:
            known = (ROOT / "requirements-dev.txt").read_text() + " ".join(of_ours)
            assert re.search(rf"\b{word}\b", known), word


def python(option: str, module: str, *words: str) -> None:
    assert option == "-m"
    if module == "cosmos_outbox":
        return cosmos_outbox(*words)
    assert importlib.util.find_spec(f"{module}.__main__"), module
    return None


def cosmos_outbox(*words: str) -> None:
    """It gets as far as the settings, of which there are none."""
    if words[0] == "init":
        assert isinstance(init._parser().parse_args(words[1:]), argparse.Namespace)
        return
    ended = run_command(*words, environment={})
    assert (ended.code, "usage:" in ended.err) == (2, False), ended.err


def curl(*words: str) -> None:
    given = dict(itertools.pairwise(words))
    if "-d" in given:
        json.loads(given["-d"])
    assert [each for each in words if re.match(r"(http://127\.0\.0\.1:\d+|\.\.\.)/", each)], words


def uvicorn(*words: str) -> None:
    [(module, _, name)] = [each.partition(":") for each in words if ":" in each]
    assert f"def {name}(" in (ROOT / f"{module.replace('.', '/')}.py").read_text()


def nothing(*_: str) -> None:
    """Of the shell's own."""


CHECKS: Mapping[str, Callable[..., None]] = {
    "make": make, "pip": pip, "python": python, ".venv/bin/python": python, "cosmos-outbox": cosmos_outbox,
    "curl": curl, "uvicorn": uvicorn, "export": nothing, "alias": nothing, "printf": nothing,
}  # fmt: skip


@pytest.mark.parametrize("page", NOT_RUN)
def test_a_command_of_a_block_that_is_not_run_exists(page: str) -> None:
    for command, *words in (each for block in PAGES[page] for each in commands(block)):
        assert command in CHECKS, f"{page}: nothing here can look up {command}"
        CHECKS[command](*words)


def test_a_block_is_read_as_a_shell_reads_it() -> None:
    block = "A=1 make run APP=x  # and more\ncurl -d '{\"a\": 1}' \\\n  http://x/y | jq\ncd z && ls\n"
    curled = ["curl", "-d", '{"a": 1}', "http://x/y"]
    assert commands(block) == [["make", "run", "APP=x"], curled, ["jq"], ["cd", "z"], ["ls"]]
