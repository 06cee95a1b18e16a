"""Preflight prints one line for each thing that was checked, and ends with an exit code for a pipeline."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

ALL_RIGHT, SOMETHING_WRONG, COULD_NOT_CHECK = 0, 1, 2
"""Exit codes. A thing that could not be checked is not right: a pipeline must not go on."""


class Status(Enum):
    """The first word of a line."""

    OK = "ok"
    WARNING = "warning"
    WRONG = "wrong"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Finding:
    """One thing that was checked; ``fix`` says what to do when it is not right."""

    status: Status
    subject: str
    text: str
    fix: str = ""

    def __str__(self) -> str:
        line = f"{self.status.value:<8} {self.subject}: {self.text}"
        return f"{line}. Fix: {self.fix}" if self.fix else line


def ok(subject: str, text: str) -> Finding:
    """A finding for a thing that is right."""
    return Finding(Status.OK, subject, text)


def warning(subject: str, text: str, fix: str) -> Finding:
    """A finding for a thing that works, at a cost."""
    return Finding(Status.WARNING, subject, text, fix)


def wrong(subject: str, text: str, fix: str) -> Finding:
    """A finding for a promise that does not hold."""
    return Finding(Status.WRONG, subject, text, fix)


def unknown(subject: str, text: str, fix: str) -> Finding:
    """A finding for a thing that could not be checked."""
    return Finding(Status.UNKNOWN, subject, text, fix)


def exit_code(findings: Iterable[Finding]) -> int:
    """The exit code: "wrong" wins over "unknown"; a warning alone does not fail."""
    seen = {finding.status for finding in findings}
    if Status.WRONG in seen:
        return SOMETHING_WRONG
    return COULD_NOT_CHECK if Status.UNKNOWN in seen else ALL_RIGHT


def summary(findings: Iterable[Finding]) -> str:
    """The last line: the number of findings of each status."""
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
