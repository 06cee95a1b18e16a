"""The commands in the documents work when pasted, and the documented settings are the app's."""

import json
import re
import subprocess

import pytest

from tests.e2e.conftest import Stack
from tests.support.emulators import Gap
from tests.support.paths import ROOT

SETTINGS_MD = (ROOT / "docs" / "use" / "settings.md").read_text()


@pytest.mark.known_gap(Gap.BATCH_IGNORES_ETAG)
def test_the_readmes_curl_lines_work_when_pasted(shared_stack: Stack) -> None:
    section = (ROOT / "README.md").read_text().partition("\n## Try it\n")[2].partition("\n## ")[0]
    [script] = re.findall(r"```sh\n(.*?)```", section, flags=re.DOTALL)
    script = script.replace("http://127.0.0.1:7071", shared_stack.functions.address.rstrip("/"))

    pasted = subprocess.run(
        ["bash", "-eu", "-c", script], capture_output=True, text=True, timeout=30, check=True
    )

    assert re.findall(r"HTTP/1.1 (\d+) ", pasted.stdout) == ["201", "200", "204"]
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
        assert name in {*sample, "SERVICEBUS_QUEUE"}, "which takes the topic's place"
        assert f"`{name}`" in SETTINGS_MD


def sources() -> list[str]:
    return [
        path.read_text()
        for path in (ROOT / "infra" / "bootstrap.py", *(ROOT / "cosmos_outbox" / "settings").glob("*.py"))
    ]
