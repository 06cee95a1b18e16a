"""No process of the torture test outlives it, however it ends."""

import subprocess
import sys

from tests.support.paths import ROOT


def test_a_leashed_process_ends_when_its_parent_is_gone() -> None:
    command = [sys.executable, "-u", "-m", "tests.torture.leash", "http.server", "--bind", "127.0.0.1", "0"]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert b"Serving HTTP" in process.stdout.readline()
        assert process.poll() is None
        process.stdin.close()  # what the system does when the parent dies
        assert process.wait(10) == 1
