"""Imports a name of a package when it is first used: each process loads what it runs, and nothing else.

A package that uses it names the module of each name, and imports the same names for type checkers alone. These packages
are the public faces, and ``composition``, from which a service and its functions take what they run.
"""

import gc
import importlib
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any


def lazy_imports(
    package: str, homes: Mapping[str, Collection[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns the ``__getattr__`` and ``__dir__`` of a package. ``homes``: names, by the module that defines them.

    A module without names is given itself, under its own.
    """
    home_of = {name: home for home, names in homes.items() for name in names or [home.rpartition(".")[2]]}

    def get(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = importlib.import_module(home_of[name])
        found = getattr(home, name) if homes[home.__name__] else home
        setattr(sys.modules[package], name, found)
        return found

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home_of})

    return get, names


@contextmanager
def loading() -> Iterator[None]:
    """Collects no garbage inside, where much is imported: that stays, and no later collection need look at it.

    Collections would take a tenth of the imports' time, and later a full one of all that is loaded 50 ms.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()
