"""What a stranger installs: three wheels that share no file, and an example that runs from them alone."""

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

import cosmos_outbox
from devstack.testing import eventually
from devstack.testing.command import running_command
from tests.support.paths import ROOT

pytestmark = pytest.mark.long

PROJECTS = {"cosmos_changefeed": "packages/changefeed", "cosmos_outbox": ".", "devstack": "packages/devstack"}
ORDER = {"customer": "Contoso", "lines": [{"sku": "A-1", "quantity": 2}]}


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
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("wheels")
    for project in PROJECTS.values():
        uv("build", "--quiet", "--wheel", "--out-dir", folder, ROOT / project)
    return {file.name.partition("-")[0]: file for file in folder.glob("*.whl")}


@pytest.fixture(scope="module")
def python(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an environment with the wheels, what they need, and nothing else."""
    environment = tmp_path_factory.mktemp("environment")
    uv("venv", "--quiet", "--clear", "--python", sys.executable, environment)
    made = environment / "bin" / "python"
    extras = f"{wheels['cosmos_outbox']}[functions,telemetry]"
    uv("pip", "install", "--quiet", "--python", made, wheels["cosmos_changefeed"], extras, wheels["devstack"])
    return made


def test_the_wheels_share_no_file_and_hold_their_own_package_alone(wheels: dict[str, Path]) -> None:
    assert set(wheels) == set(PROJECTS)
    seen: set[str] = set()
    for name, file in wheels.items():
        with zipfile.ZipFile(file) as wheel:
            files = {each for each in wheel.namelist() if ".dist-info/" not in each}
        assert {each.partition("/")[0] for each in files} == {name}
        assert f"{name}/py.typed" in files, "its types are for its users too"
        assert not [each for each in files if "__pycache__" in each or each.endswith(".pyc")]
        assert not files & seen
        seen |= files
    assert "cosmos_outbox/testing/__init__.py" in seen, "a user's tests need it"


def test_they_have_one_version(wheels: dict[str, Path]) -> None:
    assert {file.name.split("-")[1] for file in wheels.values()} == {cosmos_outbox.__version__}


def test_the_core_imports_no_functions_no_broker_and_no_telemetry_sdk(python: Path) -> None:
    program = (
        "import sys\n"
        "from cosmos_outbox import *\n"
        "print(*[name for name in ('azure.functions', 'azure.servicebus', 'opentelemetry.sdk') if name in sys.modules])"
    )
    assert run(python, "-c", program) == ""


def test_the_command_is_installed_and_lists_its_parts(python: Path) -> None:
    listed = subprocess.run(
        [python.parent / "cosmos-outbox", "--help"], capture_output=True, text=True, check=True
    )
    for part in ("relay", "subscriber", "preflight"):
        assert f"\n  {part} " in listed.stdout


def run(python: Path, *arguments: str) -> str:
    done = subprocess.run(
        [python, *arguments], cwd=python.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def api(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The example, copied to where nothing of this repository is, on the installed devstack."""
    home = tmp_path_factory.mktemp("elsewhere")
    shutil.copytree(ROOT / "examples" / "orders", home / "examples" / "orders")
    (home / "examples" / "__init__.py").touch()
    with running_command(
        home / "examples" / "orders", home, python=str(python), PYTHONPATH=str(home)
    ) as started:
        yield started.address("Functions").partition("/api/")[0]


async def test_an_example_runs_from_the_wheels_alone(api: str) -> None:
    async with aiohttp.ClientSession(api, timeout=aiohttp.ClientTimeout(30)) as session:
        async with session.post("/api/orders", json=ORDER) as answer:
            assert answer.status == 201, await answer.text()
            order_id = (await answer.json())["id"]

        async def on_the_board() -> bool:
            async with session.get("/api/board") as answer:
                assert answer.status == 200, await answer.text()
                return [each["orderId"] for each in (await answer.json())["items"]] == [order_id]

        await eventually(on_the_board)
