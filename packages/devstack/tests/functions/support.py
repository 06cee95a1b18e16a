"""Runs an app of ``apps/`` in a host of its own, with settings made for the test."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from devstack.testing import Service, running

APPS = Path(__file__).parent / "apps"
TESTS = Path(__file__).parents[1]


@contextlib.contextmanager
def host(
    folder: Path, app: str | Path, settings: Mapping[str, str] | None = None, *arguments: str
) -> Iterator[Service]:
    """A host that runs ``app``, by its name in ``apps/`` or its folder; ended with SIGTERM."""
    with running(make_host(folder, app, settings, *arguments)) as service:
        yield service


def make_host(
    folder: Path, app: str | Path, settings: Mapping[str, str] | None = None, *arguments: str
) -> Service:
    """A host that is not started yet."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "settings.json"
    file.write_text(json.dumps({"Values": dict(settings or {})}))
    environment = {"PYTHONPATH": str(TESTS)}  # the apps share a module of the tests
    return Service(
        "functions",
        folder,
        *("--app", str(APPS / app), "--settings", str(file), *arguments),
        environment=environment,
    )


def recorded(file: Path) -> list[dict[str, Any]]:
    """What the app's functions have recorded so far."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]


def with_host_json(folder: Path, app: str, service_bus: Mapping[str, Any]) -> Path:
    """A copy of the app with ``extensions.serviceBus`` set in its host.json."""
    folder.mkdir(parents=True)
    (folder / "function_app.py").write_text((APPS / app / "function_app.py").read_text())
    (folder / "host.json").write_text(
        json.dumps({"version": "2.0", "extensions": {"serviceBus": service_bus}})
    )
    return folder
