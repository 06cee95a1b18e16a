"""Every log line that is written for a request or a message carries its correlation id.

The id is kept in the context of the task, so it is there in every line that the task writes, those of the SDKs too. It
stands at the end of the text, since a plain log has nothing else, and as the record's attribute ``correlation_id``.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_current: ContextVar[str | None] = ContextVar("correlation_id", default=None)


@contextmanager
def correlated(correlation_id: str | None) -> Iterator[None]:
    """Log lines that are written meanwhile belong to this id; None: to no id."""
    before = _current.set(correlation_id)
    try:
        yield
    finally:
        _current.reset(before)


def current() -> str | None:
    """The id of what the running task works for."""
    return _current.get()


def tag_log_lines() -> None:
    """From now on the log lines of this process carry the id. A second call changes nothing."""
    made_before = logging.getLogRecordFactory()
    if isinstance(made_before, _Tagging):
        return
    logging.setLogRecordFactory(_Tagging(made_before))


class _Tagging:
    def __init__(self, make: Any) -> None:
        self._make = make

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record: logging.LogRecord = self._make(*args, **kwargs)
        if (correlation_id := _current.get()) is not None:
            record.correlation_id = correlation_id
            # With arguments the text is a format, in which "%" would mean something.
            shown = correlation_id.replace("%", "%%") if record.args else correlation_id
            record.msg = f"{record.msg} [{shown}]"
        return record
