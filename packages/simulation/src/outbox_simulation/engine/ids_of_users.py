"""Makes ``uuid4`` of the user's own code draw from the seed while a simulation runs, as the product's ids do."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cosmos_outbox.kernel import clock


class _Drawn:
    """Replaces the module ``os`` in the module ``uuid``."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    @staticmethod
    def urandom(size: int) -> bytes:
        return clock.randomness().randbytes(size)


@contextmanager
def ids_by_luck() -> Iterator[None]:
    """Draws from the seed until it ends. Code outside a simulation still gets the system's randomness."""
    before = uuid.os  # type: ignore[attr-defined]  # the module that uuid4 takes its bytes from
    uuid.os = _Drawn()  # type: ignore[attr-defined]
    try:
        yield
    finally:
        uuid.os = before  # type: ignore[attr-defined]
