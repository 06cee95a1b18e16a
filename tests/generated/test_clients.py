"""Types for TypeScript and a client for Python are generated from the document, and work with the running app.

The generators are pinned: those of npm with their digests, in ``typescript/package-lock.json``.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Stack, stack
from tests.support.openapi import FILE
from tests.typescript.test_types import program

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

HERE = Path(__file__).parent
DONE = {
    "city": None,
    "moved": "Oslo",
    "stale": "/api/problems/precondition-failed",
    "refused": [["email", "email"]],
    "listed": True,
    "gone": 204,
}
"""What each client prints of its calls."""


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run([*command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with stack(tmp_path_factory.mktemp("stack")) as started:
        yield origin(started)


def origin(started: Stack) -> str:
    return started.functions.address.rstrip("/")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project in TypeScript, with the generated types beside the client."""
    folder = tmp_path_factory.mktemp("client")
    for name in ("package.json", "package-lock.json", "client.ts"):
        shutil.copy(HERE / "typescript" / name, folder)
    run(program("npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", cwd=folder)
    generator = folder / "node_modules" / "openapi-typescript" / "bin" / "cli.js"
    run(program("node"), generator, FILE, "-o", "api.ts", cwd=folder)
    return folder


def compiled(project: Path) -> subprocess.CompletedProcess[str]:
    tsc = project / "node_modules" / "typescript" / "bin" / "tsc"
    options = [
        "--strict",
        "--target",
        "es2022",
        "--module",
        "nodenext",
        "--lib",
        "es2022,dom,dom.iterable",
    ]
    (project / "node.d.ts").write_text("declare const process: { argv: string[] };\n")
    return subprocess.run(
        [program("node"), tsc, *options, "client.ts", "node.d.ts"],
        cwd=project, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_client_in_typescript_compiles_and_works(project: Path, address: str) -> None:
    done = compiled(project)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert json.loads(run(program("node"), "client.js", address, cwd=project)) == DONE


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("contact.company?.city", "contact.company.city"),
        ('{ companyName: "Contoso" }', '{ city: "Oslo" }'),
        ('email: "jane@example.org"', "email: 7"),
        ("each.field, each.code", "each.field, each.codes"),
        ('"If-Match": etag } },\n});\nconst changed', '"If-Match": 1 } },\n});\nconst changed'),
    ],
)
def test_a_client_that_is_wrong_does_not_compile(project: Path, right: str, wrong: str) -> None:
    client = (HERE / "typescript" / "client.ts").read_text()
    assert client.count(right) == 1
    (project / "client.ts").write_text(client.replace(right, wrong))
    try:
        assert "error TS" in compiled(project).stdout
    finally:
        (project / "client.ts").write_text(client)


def test_a_client_in_python_is_generated_and_works(tmp_path: Path, address: str) -> None:
    (tmp_path / "config.yml").write_text("post_hooks: []\n")
    generator = Path(sys.executable).with_name("openapi-python-client")
    run(
        generator, "generate", "--path", FILE, "--output-path", tmp_path / "made", "--meta", "none",
        "--config", tmp_path / "config.yml", "--fail-on-warning", cwd=tmp_path,
    )  # fmt: skip
    shutil.copy(HERE / "python_client.py", tmp_path)
    assert json.loads(run(sys.executable, "python_client.py", address, cwd=tmp_path)) == DONE
