"""A relay in the process that commits need not wait for its next poll: whoever commits tells it at once.

It is a hint, and nothing rests on it: a commit of another process tells nobody here, and the poll finds it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True)
class OnCommit:
    """Called after each commit that may have stored events, by whatever stores them; tells those who listen."""

    _listeners: list[Callable[[], None]] = field(default_factory=list)

    def __call__(self) -> None:
        """Something was stored, or may have been: the answer was lost. A listener neither waits nor raises."""
        for listener in self._listeners:
            listener()

    @contextmanager
    def listening(self, listener: Callable[[], None]) -> Iterator[None]:
        """Call ``listener`` after each commit, until the block ends."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)
