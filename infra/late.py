"""A module is imported when it is first used: an instance that never uses it starts without it.

Each function of the app may have instances of its own, which need a part of the code. Python 3.15 can say the same
with ``lazy import`` (PEP 810): use that when the oldest Python here has it.
"""

import importlib.util
import sys
from types import ModuleType


def late(name: str) -> ModuleType:
    """The module of this name, which is imported when something in it is first asked for.

    A type checker sees the module when ``if TYPE_CHECKING`` imports it in the usual way.
    """
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"no module named {name}", name=name)
    # As the library's documentation shows it: the loader puts a module there that loads itself.
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    package, _, own_name = name.rpartition(".")
    if package:
        setattr(sys.modules[package], own_name, module)
    return module
