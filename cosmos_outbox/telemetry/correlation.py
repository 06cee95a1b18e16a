"""Adds the correlation id of a request or message to each log line, and escapes text that could forge a line.

The id is kept in the context of the task, so every line that the task writes has it, those of the SDKs too. It is at
the end of the text, since a plain log has no other field, and in the record's attribute ``correlation_id``.

Foreign text (a message's subject or correlation id, an error's text) may contain line breaks and terminal control
characters: a log shows them escaped, as in a Python literal. Only a traceback has several lines, all of them indented:
so a line that begins at the margin is the beginning of a record.
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
    """Log lines written inside the context have this id; None: no id."""
    before = _current.set(correlation_id)
    try:
        yield
    finally:
        _current.reset(before)


def current() -> str | None:
    """Returns the correlation id of the running task."""
    return _current.get()


def end() -> None:
    """Remove the id from this context: later lines have none."""
    _current.set(None)


def tag_log_lines() -> None:
    """Let each log record of this process have the id and be one line. A second call changes nothing."""
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
            # With arguments the text is a format, in which "%" has a meaning.
            shown = correlation_id.replace("%", "%%") if record.args else correlation_id
            record.msg = f"{record.msg} [{shown}]"
        _keep_on_one_line(record)
        return record


def _keep_on_one_line(record: logging.LogRecord) -> None:
    with suppress(Exception):  # a format that does not fit its arguments: the handler reports it
        text = record.getMessage()
        if not text.isprintable():
            record.msg, record.args = on_one_line(text), ()
    if record.exc_info and record.exc_info[1] is not None:
        lines = "".join(traceback.format_exception(record.exc_info[1])).splitlines()
        record.exc_text = "\n".join(f"  {on_one_line(line)}" for line in lines)


def on_one_line(text: str) -> str:
    """Returns the text with each unprintable character escaped as in a Python literal."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text
    )
