"""Imports cosmos-changefeed when a name of it is first used here: a service that only writes needs no such package.

Those who follow the change feed need it, and those who ask how far others have followed it.
"""

import importlib
from typing import TYPE_CHECKING, Any

from cosmos_outbox.settings.errors import needed

if TYPE_CHECKING:
    from cosmos_changefeed import *  # noqa: F403 - all of its face
else:  # to a type checker a name that is not imported above is an error

    def __getattr__(name: str) -> Any:
        """Raises Misconfigured: the package is not installed."""
        if name.startswith("__"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        needed("relay")
        return getattr(importlib.import_module("cosmos_changefeed"), name)
