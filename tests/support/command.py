"""``python -m cosmos_outbox`` as its user runs it, in a process that is forked from one that has imported it."""

import sys
from collections.abc import Mapping
from pathlib import Path

from devstack.testing import Process, ended
from devstack.testing.ended import Ended
from tests.support.paths import ROOT

__all__ = ["Ended", "run_command", "run_module", "run_python", "worker"]


def run_command(*arguments: str, environment: Mapping[str, str]) -> Ended:
    """In the checkout, whose pyproject.toml names the service, and with this environment alone."""
    return run_module("cosmos_outbox", *arguments, environment=environment)


def run_module(module: str, *arguments: str, environment: Mapping[str, str]) -> Ended:
    """Another module, in the same way."""
    return ended.run_module(module, *arguments, environment=environment, folder=ROOT)


def run_python(*arguments: str, environment: Mapping[str, str]) -> Ended:
    """A new Python there."""
    return ended.run_python(*arguments, environment=environment, folder=ROOT)


def worker(part: str, settings: Mapping[str, str], log: Path) -> Process:
    """``python -m cosmos_outbox relay``, or ``subscriber``, on top of our environment; the log is appended to."""
    command = [sys.executable, "-m", "cosmos_outbox", part, "--probes", "0"]
    return Process(part, log, command, settings, ROOT).start()
