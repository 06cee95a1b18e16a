"""A timer that finds the store away says so in one line: it runs again soon, and a traceback would tell nothing more.

The Functions host logs what a function raises with its traceback, of the SDK too: some hundred lines a minute in an
outage. A bug is raised as ever.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from cosmos_outbox.inbox.errors import StoreAway
from cosmos_outbox.outbox.errors import OutboxError

_log = logging.getLogger(__name__)


@contextmanager
def told_in_a_line(waits: str) -> Iterator[None]:
    """``waits``: what an outage holds up."""
    try:
        yield
    except (StoreAway, OutboxError) as error:
        _log.error("%s: %s", waits, error)
