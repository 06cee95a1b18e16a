"""``devstack clean`` forgets what the services stored, and nothing else."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest


def _clean(data: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "devstack", "clean"],
        env={**os.environ, "DEVSTACK_DATA": str(data)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.long
def test_clean_forgets_the_services_data_and_nothing_else(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for service in ("cosmos", "servicebus"):
        (data / service).mkdir(parents=True)
        (data / service / "x.sqlite").write_text("x")
    (data / "mine.txt").write_text("keep")
    assert _clean(data).returncode == 0
    assert [path.name for path in data.iterdir()] == ["mine.txt"]
    (data / "mine.txt").unlink()
    (data / "cosmos").mkdir()
    _clean(data)
    assert not data.exists()
    again = _clean(data)
    assert again.returncode == 0
    assert again.stdout == f"Nothing to forget in {data}\n"


def test_clean_refuses_while_a_service_uses_the_data(tmp_path: Path, cosmos_server_folder: Path) -> None:
    data = cosmos_server_folder.parent
    result = _clean(data)
    assert result.returncode == 2
    assert "is in use by another process" in result.stderr
    assert cosmos_server_folder.is_dir()


def test_clean_refuses_while_a_functions_host_uses_the_data(tmp_path: Path) -> None:
    folder = tmp_path / "functions"
    folder.mkdir()
    with (folder / "lock").open("a") as one, (folder / "lock").open("a") as other:
        for host in (one, other):
            fcntl.flock(host, fcntl.LOCK_SH | fcntl.LOCK_NB)
        assert "is in use by another process" in _clean(tmp_path).stderr
    assert _clean(tmp_path).returncode == 0
    assert not folder.exists()
