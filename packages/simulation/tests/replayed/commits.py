"""What a store saw of a run: each transaction, with its documents before and after; and what it cannot see."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

Document = Mapping[str, Any]


@dataclass(frozen=True)
class Commit:
    """One transaction; ``at``: the store's own time (UTC)."""

    at: datetime
    changes: tuple[tuple[Document | None, Document | None], ...]
    """Each document as it was and as it is; None: it was, or is, not there, deleted or expired."""
    by: str = ""
    """Whose it is."""


@dataclass(frozen=True)
class Ended:
    """A call of a reaction has returned: ``how`` is "handled" or "gave up"."""

    how: str
    reaction: str
    event: str
    by: str
    """Whose process it was."""


@dataclass(frozen=True)
class NotAllowed:
    """A step of the code that is none of the model."""

    commit: Commit
    aggregate: str
    why: str

    def __str__(self) -> str:
        return f"{self.commit.at.isoformat()} {self.commit.by}: {self.aggregate}: {self.why}"
