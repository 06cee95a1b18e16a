"""Every log line that is written for a request or a message carries its correlation id, and nobody can forge a line.

The id is kept in the context of the task, so it is there in every line that the task writes, those of the SDKs too. It
stands at the end of the text, since a plain log has nothing else, and as the record's attribute ``correlation_id``.

What others have written, a message's subject or correlation id or an error's text, may have line breaks and signs that
steer a terminal: in a log they stand as in a literal of Python. A traceback alone has several lines, all of them
indented: so a line that begins at the margin is the beginning of a record.
"""

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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


def end() -> None:
    """From now on what this context logs belongs to no id."""
    _current.set(None)


def tag_log_lines() -> None:
    """From now on the log lines of this process carry the id and are lines. A second call changes nothing."""
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
            record.correlation_id = on_one_line(correlation_id)
            # With arguments the text is a format, in which "%" would mean something.
            shown = correlation_id.replace("%", "%%") if record.args else correlation_id
            record.msg = f"{record.msg} [{shown}]"
        _keep_on_one_line(record)
        return record


def _keep_on_one_line(record: logging.LogRecord) -> None:
    with suppress(Exception):  # a format that does not fit its arguments: the handler tells it
        text = record.getMessage()
        if not text.isprintable():
            record.msg, record.args = on_one_line(text), ()
    if record.exc_info and record.exc_info[1] is not None:
        lines = "".join(traceback.format_exception(record.exc_info[1])).splitlines()
        record.exc_text = "\n".join(f"  {on_one_line(line)}" for line in lines)


def on_one_line(text: str) -> str:
    """The text with every character that does not print written as Python writes it in a literal."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text
    )
