"""What a host and its worker processes print of what azure-servicebus logs, each in a process of its own."""

from pathlib import Path

from devstack.testing.ended import run_module

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


def printed(configure: str, folder: Path) -> str:
    (folder / "failing.py").write_text(FAILING.format(configure=configure))
    return run_module("failing", folder=folder).err


def test_the_host_leaves_out_tracebacks_of_what_its_listeners_log(tmp_path: Path) -> None:
    log = printed("configure_host", tmp_path)
    assert "Traceback" not in log
    assert log.endswith("host  error: something else\n")


def test_the_app_s_process_prints_all_that_the_sdk_logs_as_an_error(tmp_path: Path) -> None:
    log = printed("configure_worker", tmp_path)
    for line in ("Traceback", "error: Unexpected error occurred", "error: something else"):
        assert line in log
