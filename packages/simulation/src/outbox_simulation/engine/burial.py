"""Who ends amid its work has no last words: a ``finally`` may await what never comes; what was opened stays open."""

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import CoroutineType
from typing import Any

_CLOSINGS = 20
"""A coroutine that awaits in its ``finally`` is closed again, so often at most."""


@contextmanager
def last_words_unheard() -> Iterator[None]:
    """What is closed amid its work would await more in a ``finally``, and leaves open what it had opened."""
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
    """From the inside out: who awaits one that goes on in its ``finally`` is told of an error, and leaves it so."""
    for _ in range(_CLOSINGS):
        for each in reversed(_awaiting(coroutine)):
            with suppress(BaseException):  # the last words of what is dead
                each.close()
        if coroutine.cr_frame is None:
            return


def _awaiting(coroutine: Any) -> list[Any]:
    """It, the coroutine that it awaits, and so on."""
    chain = []
    while isinstance(coroutine, CoroutineType):
        chain.append(coroutine)
        coroutine = coroutine.cr_await
    return chain
