"""The example of the README is a whole project's tests: it passes as it is printed there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.long
def test_the_example_passes(tmp_path: Path) -> None:
    written = re.findall(r"```python\n# (\S+\.py)\n(.*?)```", README.read_text(), re.DOTALL)
    assert [name for name, _ in written] == ["conftest.py", "test_orders.py"]
    for name, content in written:
        (tmp_path / name).write_text(content)
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=55,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "4 passed" in result.stdout


def test_the_devstack_toml_of_the_readme_is_one(tmp_path: Path) -> None:
    from devstack.app_file import read_app  # noqa: PLC0415 - used by this test alone

    [content] = re.findall(r"```toml\n(.*?)```", README.read_text(), re.DOTALL)
    (tmp_path / "devstack.toml").write_text(content)
    app = read_app(tmp_path, {})
    assert app.cosmos.containers[0].database == "shop"
    assert app.servicebus.topics[0].subscriptions[0].name == "billing"
    assert app.functions.line_to_try == "curl -i {url}"
