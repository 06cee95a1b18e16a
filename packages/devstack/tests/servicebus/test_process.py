"""The service as a process: how it starts, what it says when it cannot, how it ends."""

import subprocess
import sys
from pathlib import Path

from devstack.testing import Service, eventually, running
from devstack.testing.ended import run_module


def started(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "devstack", "servicebus", "--data", str(folder), *arguments]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_a_taken_port_is_one_line_that_says_what_to_do(servicebus_server: Service, tmp_path: Path) -> None:
    admin_port = servicebus_server.addresses[1].rpartition(":")[2]
    for flags, setting in (
        (("--port", str(servicebus_server.port), "--admin-port", "0"), "SERVICEBUS_PORT"),
        (("--port", "0", "--admin-port", admin_port), "SERVICEBUS_ADMIN_PORT"),
    ):
        refused = run_module("devstack", "servicebus", "--data", str(tmp_path / "data"), *flags)
        assert (refused.code, refused.out) == (2, "")
        assert setting in refused.err
        assert refused.err.count("\n") == 1


async def test_the_end_of_standard_input_ends_it(tmp_path: Path) -> None:
    with started(tmp_path / "data", "--port", "0", "--admin-port", "0", "--watch-stdin") as process:
        assert process.stdout is not None
        assert process.stdin is not None
        ready = process.stdout.readline().split()
        assert ready[0] == "READY"
        assert ready[1].startswith("amqp://127.0.0.1:")
        assert ready[2].startswith("http://127.0.0.1:")

        process.stdin.close()

        assert await eventually(lambda: process.poll() is not None)
        assert process.returncode == 0


def test_sigterm_is_a_good_end(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with running(Service("servicebus", folder)) as service:
        assert service.terminate() == 0
        assert service.log.read_text() == ""
