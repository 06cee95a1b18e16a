"""Each command in the documents works, or at least names files and options that exist."""

import asyncio
import json
import re
import subprocess
import sys
import uuid
from pathlib import Path

from azure.cosmos.aio import CosmosClient

from devstack.testing import Service
from tests.deploy.bicep import MAIN
from tests.deploy.test_workflows import smoke
from tests.e2e.conftest import stack
from tests.support.paths import ROOT

OPERATIONS = ROOT / "docs" / "operations"
DEPLOY_MD = (OPERATIONS / "deploy.md").read_text()
TIMES = "\N{MULTIPLICATION SIGN}"


def test_every_parameter_is_documented_with_its_default() -> None:
    table = DEPLOY_MD.partition("## Parameters")[2].partition("\n\nThe app's settings")[0]
    rows = [line.split("|")[1:4] for line in table.splitlines() if line.startswith("| `")]
    documented: dict[str, str] = {}
    for names, defaults, _ in rows:
        values = [value.strip(" `") for value in defaults.split(",")]
        documented.update(zip(re.findall(r"`(\w+)`", names), values, strict=True))
    assert set(documented) == set(MAIN.names("param"))
    for name, default in MAIN.defaults().items():
        if name != "location":
            assert documented[name] == default, name


def test_the_outputs_that_the_documents_and_workflows_use_are_there() -> None:
    texts = [
        file.read_text() for file in (*OPERATIONS.glob("*.md"), ROOT / ".github" / "workflows" / "deploy.yml")
    ]
    used = {
        name
        for text in texts
        for name in re.findall(r"\$\{?((?:FUNCTION_APP|RELAY_APP|COSMOS|SERVICEBUS)_\w+)", text)
    }
    assert {"FUNCTION_APP_NAME", "FUNCTION_APP_URL", "RELAY_APP_NAME"} <= used
    assert used <= set(MAIN.names("output"))
    assert all(name[0].isupper() for name in MAIN.names("output")), (
        "the documents restore the case of the first letter"
    )


def test_the_container_has_all_that_the_relay_worker_imports(tmp_path: Path) -> None:
    [dockerfile] = re.findall(r"```dockerfile\n(.*?)```", DEPLOY_MD, re.DOTALL)
    for source, target in re.findall(r"^COPY (\w+) (\w+)$", dockerfile, re.MULTILINE):
        (tmp_path / target).symlink_to(ROOT / source)
    command = json.loads(re.findall(r"^CMD (.+)$", dockerfile, re.MULTILINE)[0])
    ended = subprocess.run(
        [sys.executable, *command[1:]],
        cwd=tmp_path,
        env={},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stderr.startswith("relay worker: neither COSMOS nor")


def test_the_arithmetic_of_the_costs_is_right() -> None:
    alone, together = 1.0 + 9.9 + 2.0 + (3 + 4.95) + 4.95, 1.0 + 9.9 + 2.0 + (3 + 4.95) / 50 + 4.95
    for figure in (
        f"| **together**, n = 1 | {alone:.1f} RU | 4 |",
        f"| **together**, n = 50 | {together:.1f} RU | 4 |",
        f"(1 M {TIMES} {alone:.1f} + 11 M) RU = {alone + 11:.1f} M RU {TIMES} 0.25 / M | {(alone + 11) * 0.25:.2f} |",
        f"{730 * 0.012:.2f} to {730 * 0.012 * 10:.2f}",
    ):
        assert figure in DEPLOY_MD, figure


async def test_the_snippet_makes_the_containers_as_func_md_says(
    cosmos_server: Service, tmp_path: Path
) -> None:
    [snippet] = re.findall(r"<<'END'\n(.*?)END\n", (OPERATIONS / "func.md").read_text(), re.DOTALL)
    settings = json.loads((ROOT / "local.settings.sample.json").read_text())
    database = f"db-{uuid.uuid4().hex[:12]}"
    settings["Values"] |= {"COSMOS": cosmos_server.connection_string, "COSMOS_DATABASE": database}
    (tmp_path / "local.settings.json").write_text(json.dumps(settings))

    command = [sys.executable, "-c", snippet]
    await asyncio.to_thread(subprocess.run, command, cwd=tmp_path, timeout=30, check=True)

    async with CosmosClient.from_connection_string(cosmos_server.connection_string) as client:
        made = [each async for each in client.get_database_client(database).list_containers()]
    assert {each["id"]: (each["partitionKey"]["paths"], each["defaultTtl"]) for each in made} == {
        "contacts": (["/partitionKey"], -1),
        "leases": (["/id"], -1),
        "parked-events": (["/partitionKey"], -1),
        "claims": (["/partitionKey"], -1),
    }


def test_the_smoke_test_passes_when_an_event_goes_all_the_way(tmp_path: Path) -> None:
    with stack(tmp_path) as started:
        ended = smoke(started.functions.address, started.functions.log, 30)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "went all the way" in ended.stdout
