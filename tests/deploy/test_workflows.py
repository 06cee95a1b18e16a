"""CI, azd, the emulators and the editors: their files say what is meant, and name what is there."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.deploy import yaml_subset
from tests.support.paths import ROOT

WORKFLOWS = ROOT / ".github" / "workflows"
YAML = [
    ROOT / "azure.yaml",
    ROOT / "deploy" / "emulators" / "compose.yaml",
    ROOT / ".github" / "dependabot.yml",
    *sorted(WORKFLOWS.glob("*.yml")),
]
JSON = [
    *sorted((ROOT / ".vscode").glob("*.json")),
    *sorted((ROOT / ".devcontainer").glob("*.json")),
    *sorted((ROOT / "deploy").rglob("*.json")),
]


@pytest.mark.parametrize("file", YAML, ids=lambda file: file.name)
def test_yaml_is_readable(file: Path) -> None:
    assert isinstance(yaml_subset.read(file), dict)


@pytest.mark.parametrize("file", JSON, ids=lambda file: file.name)
def test_json_is_readable(file: Path) -> None:
    assert json.loads(file.read_text())


@pytest.mark.parametrize("text", ["a: 1\na: 2", "a:\n   b: 1", "a:\n\tb: 1", "a: &x 1", "- a\nb: 1", "a: [1"])
def test_yaml_that_is_not_ours_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(text)
    with pytest.raises(yaml_subset.NotOurs):
        yaml_subset.read(file)


def jobs(workflow: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml_subset.read(WORKFLOWS / workflow)["jobs"]
    return found


def steps(workflow: str) -> list[dict[str, Any]]:
    return [step for job in jobs(workflow).values() for step in job["steps"]]


@pytest.mark.parametrize("workflow", ["ci.yml", "deploy.yml"])
def test_a_workflow_may_only_read_and_runs_what_was_looked_at(workflow: str) -> None:
    assert yaml_subset.read(WORKFLOWS / workflow)["permissions"] == {"contents": "read"}
    for job in jobs(workflow).values():
        assert "timeout-minutes" in job
    for step in steps(workflow):
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"]), step
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"] == {"persist-credentials": "false"}
    assert "secrets." not in (WORKFLOWS / workflow).read_text()


def test_nothing_that_a_caller_writes_gets_into_a_script() -> None:
    for workflow in ("ci.yml", "deploy.yml"):
        assert not [step for step in steps(workflow) if "${{" in step.get("run", "")]


def test_ci_runs_all_that_a_laptop_cannot() -> None:
    ci = jobs("ci.yml")
    assert set(ci) == {"lint", "test", "bicep", "emulators", "core-tools"}
    assert ci["test"]["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13"]
    commands = "\n".join(step.get("run", "") for step in steps("ci.yml"))
    for command in (
        "make lint",
        "make test\n",
        "az bicep build",
        "az bicep lint",
        "make test-emulators",
        "func start",
    ):
        assert command in commands, command


def test_only_the_deployment_asks_for_a_token_and_it_stores_no_secret() -> None:
    assert jobs("deploy.yml")["deploy"]["permissions"] == {"contents": "read", "id-token": "write"}
    order = [step.get("run", "") for step in steps("deploy.yml")]
    preflight = next(at for at, run in enumerate(order) if "infra.preflight" in run)
    publish = next(at for at, run in enumerate(order) if "functionapp publish" in run)
    assert preflight < publish, "traffic must not come before the check"


def test_make_has_every_target_that_ci_and_the_documentation_name() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    documents = [
        *(ROOT / "docs" / "operations").glob("*.md"),
        *WORKFLOWS.glob("*.yml"),
        ROOT / ".vscode" / "tasks.json",
    ]
    named = {
        name
        for file in documents
        for name in re.findall(r"(?:^|`|\"|: )make ([a-z-]+)", file.read_text(), re.MULTILINE)
    }
    assert {"azurite", "emulators-up", "emulators-down", "test-emulators"} <= named
    assert named <= targets


def test_azd_finds_the_template_and_the_app_that_it_publishes_to() -> None:
    azd = yaml_subset.read(ROOT / "azure.yaml")
    infra = azd["infra"]
    main = (ROOT / infra["path"] / f"{infra['module']}.bicep").read_text()
    assert (ROOT / infra["path"] / f"{infra['module']}.parameters.json").exists()
    for name, service in azd["services"].items():
        assert f"{{ 'azd-service-name': '{name}' }}" in main
        assert (ROOT / service["project"] / "host.json").exists()
        assert service["remoteBuild"] == "true"


def test_the_emulators_listen_on_this_machine_only_and_are_waited_for() -> None:
    services = yaml_subset.read(ROOT / "deploy" / "emulators" / "compose.yaml")["services"]
    ports = {port for service in services.values() for port in service.get("ports", [])}
    assert all(port.startswith("127.0.0.1:") for port in ports)
    assert {
        "127.0.0.1:8081:8081",
        "127.0.0.1:5672:5672",
        "127.0.0.1:5300:5300",
        "127.0.0.1:10000:10000",
    } <= ports
    waited_for = " ".join(services["ready"]["healthcheck"]["test"])
    assert "http://cosmos:8080/ready" in waited_for
    assert "http://servicebus:5300/health" in waited_for
    assert "healthcheck" in services["sqlserver"]
    assert services["servicebus"]["depends_on"]["sqlserver"] == {"condition": "service_healthy"}


def test_the_editor_attaches_where_the_worker_listens() -> None:
    tasks = {
        task["label"]: task for task in json.loads((ROOT / ".vscode" / "tasks.json").read_text())["tasks"]
    }
    [launch] = json.loads((ROOT / ".vscode" / "launch.json").read_text())["configurations"]
    worker = tasks[launch["preLaunchTask"]]["options"]["env"]["languageWorkers__python__arguments"]
    assert worker.endswith(f"{launch['connect']['host']}:{launch['connect']['port']}")
    for task in tasks.values():
        assert set(task.get("dependsOn", [])) <= set(tasks)


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
