"""Runs a whole service under simulated faults, seed after seed, and checks it against its declaration.

=============  ======================================================================
``simulate``   runs the service, in one line of a test
``Commands``   the requests of its users
``Release``    the last release of the service, which is replaced in the run
``Publishes``  the events of another team, for a service that only subscribes
=============  ======================================================================
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outbox_simulation.derived_invariants.commands import Commands, Release
    from outbox_simulation.publishes import Publishes
    from outbox_simulation.simulating import simulate

__all__ = ["Commands", "Publishes", "Release", "simulate"]

_HOME = {
    "Commands": "derived_invariants.commands",
    "Publishes": "publishes",
    "Release": "derived_invariants.commands",
    "simulate": "simulating",
}
"""The module of each name, imported lazily: pytest loads this package's options before it rewrites asserts."""

if not TYPE_CHECKING:  # for a type checker a name that is not imported above is an error

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
