"""What a host and its worker processes print of what azure-servicebus logs, each in a process of its own."""

import subprocess
import sys

import pytest

FAILING = """
import logging
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from devstack.functions import logs

logs.{configure}()
sdk = logging.getLogger("azure.servicebus.aio._base_handler_async")
try:
    raise AttributeError("'NoneType' object has no attribute 'create_receiver_link'")
except AttributeError as error:
    PyamqpTransport.create_servicebus_exception(sdk, error)
sdk.error("something else")
"""


def printed(configure: str) -> str:
    program = FAILING.format(configure=configure)
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    return run.stderr


def test_the_host_leaves_out_the_traceback_of_what_its_listeners_tell() -> None:
    log = printed("configure_host")
    assert "Traceback" not in log
    assert log.endswith("host  error: something else\n")


@pytest.mark.parametrize("line", ["Traceback", "error: Unexpected error occurred", "error: something else"])
def test_the_app_s_process_prints_all_that_the_sdk_logs_as_an_error(line: str) -> None:
    assert line in printed("configure_worker")
