"""Each process writes down what happens to it, at once, in an append-only file.

A record is one line and one ``write``: a record that was written outlives a SIGKILL of its process. Times are seconds
of the machine's monotonic clock, which all processes share.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from pydantic import TypeAdapter

from outbox_simulation.invariants.records import Noted, Record

_RECORD: TypeAdapter[Record] = TypeAdapter(Record)


class Journal:
    """Appends records to one file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, entry: Noted) -> None:
        """The record is in the file when this returns."""
        os.write(self._file, entry.model_dump_json().encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)


class Reader:
    """Reads a file that may still grow: each call gives what is new."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new(self) -> Iterator[Record]:
        """The complete records that were not given before."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                yield _RECORD.validate_json(line)
