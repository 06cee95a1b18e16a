"""Closes a crashed process's coroutines without their cleanup: a ``finally`` may await for ever, files stay open."""

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import CoroutineType
from typing import Any

_CLOSINGS = 20
"""The most attempts to close a coroutine that awaits in its ``finally``."""


@contextmanager
def last_words_unheard() -> Iterator[None]:
    """Silences the cleanup of closed coroutines: awaits in a ``finally``, and warnings about open resources."""
    disabled, hook = logging.root.manager.disable, sys.unraisablehook
    logging.disable()
    sys.unraisablehook = lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            warnings.simplefilter("ignore", ResourceWarning)
            yield
    finally:
        sys.unraisablehook = hook
        logging.disable(disabled)


def close(coroutine: Any) -> None:
    """Closes from the inside out: an outer coroutine gets an error if an inner one goes on in its ``finally``."""
    for _ in range(_CLOSINGS):
        for each in reversed(_awaiting(coroutine)):
            with suppress(BaseException):  # errors in the cleanup of a dead process
                each.close()
        if coroutine.cr_frame is None:
            return


def _awaiting(coroutine: Any) -> list[Any]:
    """Returns the coroutine, the one that it awaits, and so on."""
    chain = []
    while isinstance(coroutine, CoroutineType):
        chain.append(coroutine)
        coroutine = coroutine.cr_await
    return chain
