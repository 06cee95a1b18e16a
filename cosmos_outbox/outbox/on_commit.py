"""A relay in the process that commits need not wait for its next poll: whoever commits tells it at once.

It is a hint, and nothing rests on it: a commit of another process tells nobody here, and the poll finds it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

PartitionKey = str | float | bool | Sequence[str | float | bool]
"""Where something was stored; a hierarchical key has several values."""

Listener = Callable[[PartitionKey], None]


@dataclass(frozen=True)
class OnCommit:
    """Called after each commit that may have stored events, by whatever stores them; tells those who listen."""

    _listeners: list[Listener] = field(default_factory=list)

    def __call__(self, partition_key: PartitionKey) -> None:
        """Something was stored there, or may have been: the answer was lost. A listener neither waits nor raises."""
        for listener in self._listeners:
            listener(partition_key)

    @contextmanager
    def listening(self, listener: Listener) -> Iterator[None]:
        """Call ``listener`` after each commit, until the block ends."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)
