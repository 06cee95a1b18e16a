"""The path of the checkout, and where Python finds what is in one."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

JUDGES = ROOT / "packages/simulation/src/outbox_simulation/invariants"
"""The rules: no code under test judges itself."""

_SOURCES = (".", "packages/devstack/src", "packages/simulation/src", "packages/simulation/tests")


def python_path(checkout: Path = ROOT) -> str:
    """PYTHONPATH for a process that runs what is in this checkout, or in a copy of it."""
    return os.pathsep.join(str(checkout / each) for each in _SOURCES)
