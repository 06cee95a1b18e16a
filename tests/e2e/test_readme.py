"""What the README tells a reader to paste works when pasted, and what it says of settings is so."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.e2e.conftest import Stack
from tests.support.emulators import Gap
from tests.support.processes import ROOT

README = (ROOT / "README.md").read_text()


@pytest.mark.known_gap(Gap.BATCH_IGNORES_ETAG)
def test_the_readmes_curl_lines_work_when_pasted(shared_stack: Stack) -> None:
    section = README.partition("## The API")[2].partition("## Messages")[0]
    [script] = re.findall(r"```sh\n(.*?)```", section, flags=re.DOTALL)
    script = script.replace("http://127.0.0.1:7071", shared_stack.functions.address.rstrip("/"))

    pasted = subprocess.run(
        ["bash", "-eu", "-c", script], capture_output=True, text=True, timeout=30, check=True
    )

    statuses = re.findall(r"HTTP/1.1 (\d+) ", pasted.stdout)
    assert statuses == ["201", "200", "200", "412", "204"]
    assert '"firstName": "Jane"' in pasted.stdout
    assert '"city": "Bergen"' in pasted.stdout


def test_every_setting_is_documented_and_in_the_sample() -> None:
    sample = json.loads((ROOT / "local.settings.sample.json").read_text())["Values"]
    read = {
        name
        for text in sources()
        for name in re.findall(r'"((?:COSMOS|SERVICEBUS|EVENT|IDEMPOTENCY)[A-Z_]*)"', text)
    }
    assert {"COSMOS", "SERVICEBUS_TOPIC", "EVENT_TTL_SECONDS"} <= read
    for name in read:
        assert name in sample
        assert f"`{name}`" in README or f"`{name}=" in README


def sources() -> list[str]:
    return [path.read_text() for path in (ROOT / "infra" / "settings.py", ROOT / "function_app.py")]


def test_every_file_that_the_documentation_names_is_there() -> None:
    for document in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for link in re.findall(r"\]\((?!https?:)([^)#]+)\)", document.read_text()):
            assert (document.parent / link).exists(), f"{document.name} links to {link}"
        for name in re.findall(
            r"`((?:domain|application|infra|tests|devstack)/[\w/.]+)`", document.read_text()
        ):
            assert (ROOT / Path(name)).exists(), f"{document.name} names {name}"
