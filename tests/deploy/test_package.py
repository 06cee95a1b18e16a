"""What is published is the app with the locked packages; the lock is complete, and fits ``requirements.txt``."""

import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.deploy.bicep import MAIN
from tests.deploy.test_settings import deployable
from tests.support.functions import functions
from tests.support.paths import ROOT
from tools.package import LOCK, PACKAGES, PLATFORM, main, make, python_of_the_app

LOCKED = re.compile(
    r"^([\w.-]+)==([\w.+!-]+)(?: ; (.+?))? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE
)
TEXT = (ROOT / LOCK).read_text()


def environment(python: str) -> dict[str, str]:
    """The markers of the platform: Linux with this Python."""
    linux = {"python_version": python, "python_full_version": f"{python}.9", "sys_platform": "linux",
             "platform_system": "Linux", "os_name": "posix", "platform_machine": "x86_64",
             "implementation_name": "cpython", "platform_python_implementation": "CPython"}  # fmt: skip
    return {key: str(value) for key, value in default_environment().items()} | linux


def locked(python: str) -> dict[str, Version]:
    """The packages that pip installs there."""
    found: dict[str, Version] = {}
    for name, version, marker, _ in LOCKED.findall(TEXT):
        if not marker or Requirement(f"x; {marker}").marker.evaluate(environment(python)):  # type: ignore[union-attr]  # it has one
            found[canonicalize_name(name)] = Version(version)
    return found


def wanted(lines: list[str], python: str, extra: str = "") -> Iterator[Requirement]:
    """The requirements in these lines that hold there."""
    for line in lines:
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({**environment(python), "extra": extra}):
            yield requirement


def asked_for() -> list[str]:
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_every_package_in_the_lock_has_a_version_and_hashes() -> None:
    lines = [line for line in TEXT.splitlines() if line and line[0] not in " #"]
    assert len(LOCKED.findall(TEXT)) == len(lines)


@pytest.mark.parametrize("python", MAIN.allowed("pythonVersion"))
def test_the_lock_has_the_requirements_and_all_their_dependencies(python: str) -> None:
    """By what the packages say that are here. One that is newer here than in the lock, since the index has a
    newer release, shows which packages come with it, but not in which version."""
    packages = locked(python)
    left, seen, newer = [*wanted(asked_for(), python)], set(), False
    while left:
        requirement = left.pop()
        name = canonicalize_name(requirement.name)
        assert name in packages, f"{requirement} is not locked: run make lock"
        assert packages[name] in requirement.specifier, (
            f"{requirement} is locked at {packages[name]}: run make lock"
        )
        key = (name, frozenset(requirement.extras))
        if key in seen:
            continue
        seen.add(key)
        try:
            here = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # a package of another Python
        come = [
            of for extra in ("", *requirement.extras) for of in wanted(here.requires or [], python, extra)
        ]
        if Version(here.version) != packages[name]:
            newer = True
            come = [
                Requirement(f"{of.name}[{','.join(of.extras)}]")
                for of in come
                if canonicalize_name(of.name) in packages
            ]
        left += come
    nobodys = set(packages) - {name for name, _ in seen}
    assert newer or not nobodys, f"nobody asks for {nobodys}: run make lock"


def run(code: str, folder: Path, *paths: Path) -> subprocess.CompletedProcess[str]:
    """A program that has the standard library and what is in ``paths``, and no package of this environment."""
    found = "".join(f"sys.path.append({str(path)!r})\n" for path in paths)
    return subprocess.run(
        [sys.executable, "-I", "-S", "-W", "error", "-c", f"import sys\n{found}{code}"],
        cwd=folder,
        env={"PATH": "/missing"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


HERE = {
    ("Linux", "x86_64"): PLATFORM,
    ("Linux", "aarch64"): "aarch64-manylinux_2_28",
    ("Darwin", "arm64"): "aarch64-apple-darwin",
    ("Darwin", "x86_64"): "x86_64-apple-darwin",
}


@pytest.mark.long
def test_a_package_holds_the_app_with_all_that_it_imports_and_the_lock(tmp_path: Path) -> None:
    """For the Python of this run and this machine, so that it can be imported here. Needs the package index."""
    folder = tmp_path / "package"
    here = HERE[platform.system(), platform.machine()]
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    make(ROOT, folder, python, here)
    assert {entry.name for entry in folder.iterdir()} == {*deployable(), PACKAGES.parts[0]}
    assert (folder / "requirements.txt").read_text() == TEXT
    assert not [*folder.rglob("__pycache__")]
    for entry in deployable() - {"requirements.txt"}:
        files = (file for file in (ROOT / entry).rglob("*") if "__pycache__" not in file.parts)
        of_app = {
            file.relative_to(ROOT)
            for file in files
            if not {"README.md", "templates", "testing"} & {*file.parts}
        }
        assert {file.relative_to(folder) for file in (folder / entry).rglob("*")} == of_app
    there = {
        canonicalize_name(found.name): Version(found.version)
        for found in metadata.distributions(path=[str(folder / PACKAGES)])
    }
    assert there == locked(python)

    code = """
import function_app, infra.bootstrap, cosmos_outbox.worker.relay, cosmos_outbox.worker.subscriber
import cosmos_outbox.cli.preflight
import azure.monitor.opentelemetry.exporter, opentelemetry.exporter.otlp.proto.http
print(len(function_app.app.get_functions()))
"""
    imported = run(code, tmp_path, folder, folder / PACKAGES)
    assert (imported.returncode, imported.stderr) == (0, "")
    assert int(imported.stdout) == len(functions())
    without = run(code, tmp_path, folder)
    assert "azure-functions: not installed" in without.stderr, (
        "the program has packages that are not the package's"
    )

    (folder / "infra" / "left_over.py").touch()
    make(ROOT, folder, python, here)
    assert not (folder / "infra" / "left_over.py").exists()


@pytest.mark.long
@pytest.mark.parametrize("python", MAIN.allowed("pythonVersion"))
def test_a_package_is_made_for_the_apps_python_by_any_python(python: str, tmp_path: Path) -> None:
    folder = tmp_path / "package"
    make(ROOT, folder, python)
    there = {
        canonicalize_name(found.name): Version(found.version)
        for found in metadata.distributions(path=[str(folder / PACKAGES)])
    }
    assert there == locked(python)
    compiled = [*(folder / PACKAGES).rglob("*.so")]
    assert compiled
    fitting = (f".cpython-{python.replace('.', '')}-x86_64-linux-gnu.so", ".abi3.so")
    assert [file.name for file in compiled if not file.name.endswith(fitting)] == []
    for file in compiled:
        header = file.read_bytes()[:20]
        assert (header[:4], header[18:20]) == (b"\x7fELF", b"\x3e\x00"), (
            f"{file.name} is not for Linux on x86-64"
        )


def test_the_python_of_a_package_is_the_deployments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("APP_PYTHON_VERSION", raising=False)
    assert python_of_the_app(ROOT) == MAIN.defaults()["pythonVersion"]
    for version in MAIN.allowed("pythonVersion"):
        monkeypatch.setenv("APP_PYTHON_VERSION", version)
        assert python_of_the_app(ROOT) == version
    monkeypatch.setenv("APP_PYTHON_VERSION", "3.10")
    with pytest.raises(
        ValueError, match=r"APP_PYTHON_VERSION is 3\.10: set it to the output of the deployment"
    ):
        python_of_the_app(ROOT)
    assert MAIN.declaration("output", "APP_PYTHON_VERSION").text.endswith("= pythonVersion")


def test_without_uv_a_package_is_refused_and_the_old_one_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "host.json").touch()
    monkeypatch.setattr("tools.package.shutil.which", lambda name, path: None)
    with pytest.raises(ValueError, match="uv is not there: run make venv"):
        make(ROOT, tmp_path, "3.12")
    assert (tmp_path / "host.json").exists()


def test_a_folder_that_is_no_package_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").touch()
    assert main([str(mine)]) == 1
    assert "name a folder that may be replaced" in capsys.readouterr().err
    assert (mine / "thesis.txt").exists()
