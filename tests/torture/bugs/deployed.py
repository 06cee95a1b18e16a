"""A planted bug changes one thing of the deployed ``function_app.py``; the rest of the app is the deployed one."""

from types import ModuleType
from typing import Any

import azure.functions as func

from infra import relay_feed
from tests.support.paths import ROOT

FORWARD = "await application().outbox.forward(documents)"
"""The deployed relay's one line."""

_LEASE_EXPIRATION_MS = 3_000
_LEASE_RENEW_MS = 1_000
_LEASE_ACQUIRE_MS = 500


def deployed_but(old: str = "", new: str = "", **names: Any) -> func.FunctionApp:
    """The deployed app with ``old``, which must be there once, replaced; ``names`` are what ``new`` may use.

    Leases expire sooner, so that a run that kills the host need not wait for them.
    """
    relay_feed.LEASE_EXPIRATION_MS = _LEASE_EXPIRATION_MS
    relay_feed.LEASE_RENEW_MS = _LEASE_RENEW_MS
    relay_feed.LEASE_ACQUIRE_MS = _LEASE_ACQUIRE_MS
    file = ROOT / "function_app.py"
    source = file.read_text()
    if old:
        assert source.count(old) == 1, f"{old!r} is not what is deployed any more: plant the bug anew"
        source = source.replace(old, new)
    module = {"__name__": "function_app", **names}
    exec(compile(source, str(file), "exec"), module)
    app = module["app"]
    assert isinstance(app, func.FunctionApp)
    return app


def plant(module: ModuleType, name: str, wrong: object) -> None:
    """Replace what a module of the app calls ``name``, which must be there."""
    assert hasattr(module, name), f"{module.__name__} has no {name} any more: plant the bug anew"
    setattr(module, name, wrong)
