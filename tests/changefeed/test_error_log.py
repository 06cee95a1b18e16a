"""Without a callback of its own, a program's log has an outage in a line and a bug with its traceback."""

import pytest
from azure.core.exceptions import ServiceRequestError

from cosmos_changefeed import ChangeFeedProcessor, LeaseLost
from cosmos_changefeed.processor import log_error
from devstack.testing import eventually
from tests.changefeed.in_memory import InMemory
from tests.changefeed.support import FAST, Recorder


@pytest.mark.parametrize(
    ("error", "traceback"), [(ServiceRequestError("no connection"), False), (KeyError("a bug"), True)]
)
def test_an_outage_is_a_line_and_a_bug_has_its_traceback(
    error: Exception, traceback: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log_error("0", error)
    [line] = caplog.records
    assert (line.getMessage(), line.exc_info is not None) == (f"lease 0: {error}", traceback)


def test_a_lost_lease_says_which_one_it_is_and_why() -> None:
    assert str(LeaseLost("7", "b took the lease")) == "lease 7 is lost: b took the lease"


async def test_a_failing_error_callback_is_logged_too_and_ends_nothing(
    memory: InMemory, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_lease: str | None, _error: Exception) -> None:
        raise RuntimeError("the callback is broken")

    handler = Recorder(failures=1)
    await memory.write("a", 1)
    async with ChangeFeedProcessor(
        memory.monitored,
        memory.leases,
        handler,
        instance_name="a",
        options=FAST,
        on_error=broken,
        clock=memory.clock,
    ):
        await eventually(lambda: handler.ids == ["a-1"])
    assert "the callback is broken" in caplog.text
    assert "lease 0: asked to fail" in caplog.text
