"""Without a callback of its own, a program's log tells an outage in a line and a bug with its traceback."""

import pytest
from azure.core.exceptions import ServiceRequestError

from cosmos_changefeed.processor import log_error


@pytest.mark.parametrize(
    ("error", "traceback"), [(ServiceRequestError("no connection"), False), (KeyError("a bug"), True)]
)
def test_an_outage_is_a_line_and_a_bug_has_its_traceback(
    error: Exception, traceback: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log_error("0", error)
    [line] = caplog.records
    assert (line.getMessage(), line.exc_info is not None) == (f"lease 0: {error}", traceback)
