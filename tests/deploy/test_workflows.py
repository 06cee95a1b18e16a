"""CI, azd, the emulators and the editors name only files and targets that exist."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.bicep import MAIN
from tests.support.paths import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text()


def read(file: Path) -> Any:
    return yaml.safe_load(file.read_text())


def steps(workflow: Path) -> list[dict[str, Any]]:
    return [step for job in read(workflow)["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda file: file.name)
def test_a_workflow_runs_only_what_was_looked_at(workflow: Path) -> None:
    """An action is pinned to a commit, and a text that a caller writes cannot become a part of a script."""
    for step in steps(workflow):
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"]), step
        assert "${{" not in step.get("run", ""), step


def test_ci_tests_each_python_that_a_deployment_may_choose() -> None:
    matrix = read(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]["test"]["strategy"]["matrix"]
    assert matrix["python"] == MAIN.allowed("pythonVersion")


def test_make_has_every_target_that_ci_and_the_documentation_name() -> None:
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    internals = ROOT / "docs" / "internals"
    docs = [*(ROOT / "docs" / "operate").glob("*.md"), internals / "emulators.md", internals / "torture.md"]
    documents = [*docs, *WORKFLOWS, ROOT / ".vscode" / "tasks.json"]
    named = {
        name
        for file in documents
        for name in re.findall(r"(?:^|`|\"|: )make ([a-z-]+)", file.read_text(), re.MULTILINE)
    }
    assert {"lint", "test", "emulators-up", "test-emulators"} <= named
    assert named <= targets


def test_make_run_passes_settings_with_a_dot_on() -> None:
    """From the environment, which a shell drops them from, and from make's own arguments."""
    shown = (
        "import os; print(*sorted(f'{n}={v}' for n, v in os.environ.items() if n.startswith('AzureWebJobs')))"
    )
    ended = subprocess.run(
        [
            "make",
            "--silent",
            "run",
            f'BIN={sys.executable} -c "{shown}"',
            "AzureWebJobs.tend_parked.Disabled=true",
        ],
        cwd=ROOT,
        env={**os.environ, "AzureWebJobs.relay.Disabled": "it's true"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ended.stdout == "AzureWebJobs.relay.Disabled=it's true AzureWebJobs.tend_parked.Disabled=true\n"


def test_azd_finds_the_template_and_publishes_as_who_deploys() -> None:
    """Without a service: azd would have an app write its own code, which no app can."""
    azd = read(ROOT / "azure.yaml")
    infra = azd["infra"]
    assert (ROOT / infra["path"] / f"{infra['module']}.bicep").exists()
    assert (ROOT / infra["path"] / f"{infra['module']}.parameters.json").exists()
    assert "services" not in azd
    for hook in azd["hooks"]["postprovision"].values():
        commands = [command.split() for command in hook["run"].split(" && ")]
        assert [command[1:] for command in commands[-2:]] == [
            ["-m", "tools.package"],
            ["-m", "tools.publish"],
        ]


def test_the_deployment_publishes_before_an_optional_preflight() -> None:
    workflow = ROOT / ".github" / "workflows" / "deploy.yml"
    found = steps(workflow)
    commands = [step.get("run", "") for step in found]
    [template] = [command for command in commands if "deployment group create" in command]
    assert 'grantPreflight="$PREFLIGHT"' in template
    [published] = [number for number, command in enumerate(commands) if command.endswith("-m tools.publish")]
    [packaged] = [number for number, command in enumerate(commands) if command.endswith("-m tools.package")]
    [checked] = [number for number, command in enumerate(commands) if "cosmos_outbox preflight" in command]
    assert packaged < published < checked
    assert found[checked]["if"] == "inputs.preflight"
    inputs = read(workflow)[True]["workflow_dispatch"]["inputs"]  # YAML reads "on" as true
    assert (inputs["preflight"]["type"], inputs["preflight"]["default"]) == ("boolean", True)


def test_the_emulators_are_only_where_the_tests_look_for_them() -> None:
    compose = ROOT / "deploy" / "emulators" / "compose.yaml"
    services = read(compose)["services"]
    published = {port for service in services.values() for port in service.get("ports", [])}
    assert all(port.startswith("127.0.0.1:") for port in published), "an emulator is for this machine only"
    used = re.findall(
        r"\w+://(127\.0\.0\.1:\d+)", MAKEFILE.partition("TEST_COSMOS =")[2].partition("\n\n")[0]
    )
    assert len(used) == 3
    assert set(used) <= {port.rpartition(":")[0] for port in published}
    for service in services.values():
        for volume in service.get("volumes", []):
            assert (compose.parent / volume.partition(":")[0]).exists(), volume


def smoke(url: str, log: Path, patience: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / ".github" / "scripts" / "smoke", url, log],
        env={"PATH": "/usr/bin:/bin:/usr/local/bin", "SECONDS_TO_WAIT": str(patience)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def test_the_smoke_test_fails_when_nobody_answers(tmp_path: Path) -> None:
    ended = smoke("http://127.0.0.1:9", tmp_path / "log", 1)
    assert ended.returncode == 1
    assert "GET /api/health answers 200: not within 1 s" in ended.stderr
