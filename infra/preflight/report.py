"""What preflight says: one line for each thing it looked at, and an exit code that a pipeline can act on."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

ALL_RIGHT, SOMETHING_WRONG, COULD_NOT_CHECK = 0, 1, 2
"""Exit codes. What could not be checked is not right: a pipeline must not go on."""


class Status(Enum):
    """How a line starts."""

    OK = "ok"
    WARNING = "warning"
    WRONG = "wrong"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; ``fix`` says what to do unless it is right."""

    status: Status
    subject: str
    text: str
    fix: str = ""

    def __str__(self) -> str:
        line = f"{self.status.value:<8} {self.subject}: {self.text}"
        return f"{line}. Fix: {self.fix}" if self.fix else line


def ok(subject: str, text: str) -> Finding:
    """As it should be."""
    return Finding(Status.OK, subject, text)


def warning(subject: str, text: str, fix: str) -> Finding:
    """It works, and costs something."""
    return Finding(Status.WARNING, subject, text, fix)


def wrong(subject: str, text: str, fix: str) -> Finding:
    """A promise does not hold."""
    return Finding(Status.WRONG, subject, text, fix)


def unknown(subject: str, text: str, fix: str) -> Finding:
    """Nothing can be said."""
    return Finding(Status.UNKNOWN, subject, text, fix)


def exit_code(findings: Iterable[Finding]) -> int:
    """What is wrong outweighs what is not known; a warning alone fails nothing."""
    seen = {finding.status for finding in findings}
    if Status.WRONG in seen:
        return SOMETHING_WRONG
    return COULD_NOT_CHECK if Status.UNKNOWN in seen else ALL_RIGHT


def summary(findings: Iterable[Finding]) -> str:
    """The last line: how many of each."""
    statuses = [finding.status for finding in findings]
    counts = ((status, statuses.count(status)) for status in Status)
    return ", ".join(f"{count} {status.value}" for status, count in counts if count)


def written(duration: timedelta) -> str:
    """A duration as people say it: the largest unit that leaves no fraction."""
    seconds = round(duration.total_seconds())
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds and seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
