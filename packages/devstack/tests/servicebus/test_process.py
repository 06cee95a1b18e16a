"""The service as a process: how it starts, what it says when it cannot, how it ends."""

from pathlib import Path

import pytest

from devstack.testing import Service, eventually, running
from devstack.testing.ended import run_module

pytestmark = pytest.mark.long  # tests/contract goes through the same calls, quickly


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


@pytest.mark.long
async def test_the_end_of_standard_input_ends_it(tmp_path: Path) -> None:
    service = Service("servicebus", tmp_path / "data")
    service.log.parent.mkdir(parents=True, exist_ok=True)
    with service.log.open("ab") as log:
        process = service.begin(log)
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdout:
        service.wait_until_ready(process)
        assert service.addresses[0].startswith("amqp://127.0.0.1:")
        assert service.addresses[1].startswith("http://127.0.0.1:")

        process.stdin.close()

        assert await eventually(lambda: process.poll() is not None)
        assert process.poll() == 0


def test_sigterm_is_a_good_end(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with running(Service("servicebus", folder)) as service:
        assert service.terminate() == 0
        assert service.log.read_text() == ""
