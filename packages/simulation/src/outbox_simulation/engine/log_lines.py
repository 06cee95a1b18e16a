"""Writes the code's log to the run's trace only."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from outbox_simulation.engine.trace import RunTrace


class _ToTrace(logging.Handler):
    """Takes warnings and errors."""

    def __init__(self, trace: RunTrace) -> None:
        super().__init__(logging.WARNING)
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        """Takes only the first line: a traceback names files of this machine."""
        self._trace.note("says", detail=record.getMessage().splitlines()[0])


@contextmanager
def logged_to(trace: RunTrace) -> Iterator[None]:
    """Sends the code's log lines to the trace."""
    root = logging.root
    before, level = root.handlers[:], root.level
    root.handlers[:] = [_ToTrace(trace)]
    root.setLevel(logging.WARNING)
    try:
        yield
    finally:
        root.handlers[:] = before
        root.setLevel(level)
