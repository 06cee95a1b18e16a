"""What a stranger installs: four distributions that share no file, and the examples, which run from them alone.

Each wheel is built from its sdist: so both hold all that is needed.
"""

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import aiohttp
import pytest

import cosmos_outbox
from devstack.testing import Stack, eventually
from devstack.testing.command import running_command
from tests.support.paths import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

PROJECTS = {
    "cosmos_changefeed": "packages/changefeed",
    "cosmos_outbox": ".",
    "devstack": "packages/devstack",
    "outbox_simulation": "packages/simulation",
}
ORDER = {"customer": "Contoso", "lines": [{"sku": "A-1", "quantity": 2}]}
WITH_TESTS = sorted(each.parent.name for each in ROOT.glob("examples/*/tests"))
"""The examples that bring their own tests."""
THEIR_TESTS_NEED = (
    "pytest",
    "pytest-asyncio",
    "pytest-timeout",
    "fastapi",
    "uvicorn",
    "httpx",
    "standardwebhooks",
)


def uv(*arguments: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "uv", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all sdists and wheels: those of a release, where one is made."""
    if given := os.environ.get("BUILT_DISTRIBUTIONS"):
        return Path(given)
    folder = tmp_path_factory.mktemp("built")
    for project in PROJECTS.values():
        uv("build", "--quiet", "--out-dir", folder, ROOT / project)
    return folder


@pytest.fixture(scope="module")
def wheels(built: Path) -> dict[str, Path]:
    return {file.name.partition("-")[0]: file for file in built.glob("*.whl")}


@pytest.fixture(scope="module")
def sdists(built: Path) -> dict[str, Path]:
    return {file.name.partition("-")[0]: file for file in built.glob("*.tar.gz")}


def environment(folder: Path, *installed: str | Path) -> Path:
    """The Python of an environment with these, what they need, and nothing else."""
    uv("venv", "--quiet", "--clear", "--python", sys.executable, folder)
    python = folder / "bin" / "python"
    uv("pip", "install", "--quiet", "--no-sources", "--python", python, *installed)
    return python


@pytest.fixture(scope="module")
def python(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With all four wheels."""
    extras = f"{wheels['cosmos_outbox']}[functions,servicebus,storagequeue,telemetry]"
    folder = tmp_path_factory.mktemp("environment")
    beside = [wheels[each] for each in PROJECTS if each != "cosmos_outbox"]
    return environment(folder, extras, *beside, *THEIR_TESTS_NEED)


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With what ``pip install .`` brings."""
    return environment(tmp_path_factory.mktemp("writer"), ROOT)


def files_of(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as opened:
        return {each for each in opened.namelist() if ".dist-info/" not in each}


def test_the_wheels_share_no_file_and_hold_their_own_package_alone(wheels: dict[str, Path]) -> None:
    assert set(wheels) == set(PROJECTS)
    seen: set[str] = set()
    for name, wheel in wheels.items():
        files = files_of(wheel)
        assert {each.partition("/")[0] for each in files} == {name}
        assert f"{name}/py.typed" in files, "its types are for its users too"
        assert not [each for each in files if "__pycache__" in each or each.endswith(".pyc")]
        assert not files & seen
        seen |= files
    assert "cosmos_outbox/testing/__init__.py" in seen, "a user's tests need it"


def test_they_have_one_version(wheels: dict[str, Path], sdists: dict[str, Path]) -> None:
    names = [*wheels.values(), *sdists.values()]
    assert {file.name.split("-")[1].removesuffix(".tar.gz") for file in names} == {cosmos_outbox.__version__}


def test_the_core_imports_no_functions_no_broker_and_no_telemetry_sdk(python: Path) -> None:
    program = (
        "import sys\n"
        "from cosmos_outbox import *\n"
        "print(*[name for name in ('azure.functions', 'azure.servicebus', 'opentelemetry.sdk') if name in sys.modules])"
    )
    assert run(python, "-c", program) == ""


def test_the_command_is_installed_and_lists_its_parts(python: Path) -> None:
    listed = run(python.parent / "cosmos-outbox", "--help")
    for part in ("relay", "subscriber", "preflight"):
        assert f"\n  {part} " in listed


def test_a_service_is_written_by_what_an_sdist_installs(sdists: dict[str, Path], tmp_path: Path) -> None:
    command = environment(tmp_path / "environment", sdists["cosmos_outbox"]).parent / "cosmos-outbox"
    for kind in ("functions", "fastapi"):
        run(command, "init", "bookings", "--kind", kind, "--into", str(tmp_path / kind))
        templates = ROOT / "cosmos_outbox" / "cli" / "templates"
        assert len(files_in(tmp_path / kind)) == len(
            files_in(templates / kind) + files_in(templates / "common")
        )


@pytest.mark.parametrize("kind", ["functions", "fastapi"])
def test_a_written_service_installs_by_its_own_files_and_passes_its_tests(
    python: Path, kind: str, tmp_path: Path
) -> None:
    """In an environment with nothing else, while no index has our packages."""
    home = tmp_path / "bookings"
    run(python.parent / "cosmos-outbox", "init", "bookings", "--kind", kind, "--into", str(home))
    own = environment(tmp_path / "environment", "-r", home / "requirements-dev.txt")
    tested = subprocess.run(
        [own, "-m", "pytest", "-q"], cwd=home, capture_output=True, text=True, check=False
    )
    assert tested.returncode == 0, tested.stdout[-4000:]


def files_in(folder: Path) -> list[Path]:
    return [each for each in folder.rglob("*") if each.is_file()]


WRITES = """
import asyncio
from datetime import UTC, datetime
from examples.fastapi.person import Details, Person
from cosmos_outbox import Names, Origin, Service

service = Service("people", [Person], Names(database="people", container="people", topic="people-events"))

async def main():
    wired = service()
    async with wired.resources:
        person = Person.add(Details(name="Ada", email="ada@contoso.com"), at=datetime.now(UTC))
        await wired.aggregates.create(person, Origin(correlation_id="1"))
        found = await wired.aggregates.read(Person, person.aggregate_id, Origin(correlation_id="2"))
        print(found.aggregate.state.name)
        try:
            await wired.operator.observer.status()
        except Exception as error:
            print(type(error).__name__, error)

asyncio.run(main())
"""


def test_who_only_writes_needs_no_extra(writer: Path, tmp_path: Path) -> None:
    installed = uv("pip", "list", "--python", writer)
    assert not [each for each in ("servicebus", "changefeed", "functions", "-sdk") if each in installed]
    home = elsewhere(tmp_path, "fastapi")
    with Stack(tmp_path / "stack") as stack:
        stack.make(home / "examples" / "fastapi")
        done = subprocess.run(
            [writer, "-c", WRITES], cwd=home, env=stack.settings, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    name, refused = done.stdout.splitlines()
    assert name == "Ada"
    assert refused.startswith("Misconfigured cosmos-changefeed: not installed; run ")
    assert refused.endswith("-m pip install 'cosmos-outbox[relay]'")


ANY_SERVICE = """
from cosmos_outbox import Names, Service

service = Service("bookings", aggregates=[], names=Names("d", "bookings", topic="booking-events"))

@service.effect("booking-mails", of="booking")
async def mail(event): pass
"""
SETTINGS = {
    "COSMOS": "AccountEndpoint=http://127.0.0.1:1/;AccountKey=a2V5",
    "SERVICEBUS": "Endpoint=sb://b",
    "STORAGEQUEUE": "UseDevelopmentStorage=true",
}


@pytest.fixture(scope="module")
def queues_alone(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a service over Storage queues installs."""
    extras = f"{wheels['cosmos_outbox']}[functions,storagequeue]"
    return environment(tmp_path_factory.mktemp("queues"), wheels["cosmos_changefeed"], extras)


def test_a_service_over_storage_queues_installs_nothing_of_service_bus(
    queues_alone: Path, tmp_path: Path
) -> None:
    assert "servicebus" not in uv("pip", "list", "--python", queues_alone)
    (tmp_path / "bookings.py").write_text(ANY_SERVICE)
    app = "import bookings, cosmos_outbox.functions as f; print(len(f.app(bookings.service).get_functions()))"
    over_queues = SETTINGS | {"TRANSPORT": "storagequeue"}
    made = subprocess.run(
        [queues_alone, "-c", app], cwd=tmp_path, env=over_queues, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    assert int(made.stdout) > 10


def refused(command: Path, folder: Path, *arguments: str, settings: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        [command, *arguments],
        cwd=folder,
        env=settings,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr


def run(program: Path, *arguments: str) -> str:
    done = subprocess.run(
        [program, *arguments], cwd=program.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def elsewhere(folder: Path, *examples: str) -> Path:
    """A folder with these examples, and nothing else of this repository."""
    for each in examples:
        shutil.copytree(ROOT / "examples" / each, folder / "examples" / each)
    (folder / "examples" / "__init__.py").touch()
    return folder


@pytest.fixture(scope="module")
def api(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The example for Functions, on the installed devstack."""
    home = elsewhere(tmp_path_factory.mktemp("orders"), "orders")
    with running_command(
        home / "examples" / "orders", home, python=str(python), PYTHONPATH=str(home)
    ) as started:
        yield started.address("Functions").partition("/api/")[0]


async def test_the_function_app_runs_from_the_wheels_alone(api: str) -> None:
    async with aiohttp.ClientSession(api, timeout=aiohttp.ClientTimeout(30)) as session:
        async with session.post("/api/orders", json=ORDER) as answer:
            assert answer.status == 201, await answer.text()
            order_id = (await answer.json())["id"]

        async def on_the_board() -> bool:
            async with session.get("/api/board") as answer:
                assert answer.status == 200, await answer.text()
                return [each["orderId"] for each in (await answer.json())["items"]] == [order_id]

        await eventually(on_the_board)


@pytest.mark.parametrize("example", WITH_TESTS)
def test_an_example_passes_its_own_tests_with_the_wheels_alone(
    python: Path, example: str, tmp_path: Path
) -> None:
    home = elsewhere(tmp_path, *WITH_TESTS)
    (home / "pytest.ini").write_text(
        "[pytest]\naddopts = -p no:cacheprovider -p devstack.testing.fixtures\nasyncio_mode = auto\n"
        "markers = long\ntimeout = 120\n"
    )
    done = subprocess.run(
        [python, "-m", "pytest", "-q", f"examples/{example}"],
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
