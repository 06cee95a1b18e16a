"""What the operating system says of processes. One that has ended and waits to be collected counts as gone."""

import subprocess
from pathlib import Path

PROC = Path("/proc")


def is_alive(pid: int) -> bool:
    return _state(pid) not in {"", "Z"}


def alive_with(text: str) -> list[int]:
    """The living processes with ``text`` in their command line, such as a data folder that only one test uses."""
    if PROC.is_dir():
        found = [
            int(folder.name)
            for folder in PROC.iterdir()
            if folder.name.isdigit() and text in _command(folder)
        ]
    else:
        listing = subprocess.run(["ps", "-axo", "pid=,command="], capture_output=True, text=True, check=True)
        found = [int(line.split()[0]) for line in listing.stdout.splitlines() if text in line]
    return [pid for pid in found if is_alive(pid)]


def _state(pid: int) -> str:
    if PROC.is_dir():
        try:
            return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return ""
    listing = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return listing.stdout.strip()[:1]


def _command(folder: Path) -> str:
    try:
        return (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
