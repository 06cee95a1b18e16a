"""The warm process of :mod:`devstack.testing.warm`: it has imported the services, and forks one for each request.

A request has the module, the arguments, the environment and the folder of a command, its three streams, and a socket
that gets the process id, and at its end the exit code. The services see the end of their standard input by
themselves.
"""

import gc
import importlib
import os
import runpy
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from devstack.__main__ import COMMANDS
from devstack.testing import forked_workers
from devstack.testing.forking import Ahead, Forking, end_with, folders_of

MODULES = (
    *(module for name, module in COMMANDS.items() if name != "clean"),
    "azure.cosmos.aio",
    "azure.functions",
    "azure.identity.aio",
    "azure.servicebus.aio",
    "pydantic",
)
"""What the services import, and what most apps do."""


def _serve(descriptor: int, modules: Sequence[str]) -> None:
    for module in MODULES:
        importlib.import_module(module)
    ahead = Ahead(modules)
    gc.freeze()  # what is loaded is shared with all children: no collection may touch it
    request = Forking(socket.socket(fileno=descriptor)).serve()
    if request is not None:
        (module, arguments, environment, folder), streams = request
        os.setsid()
        for number, each in enumerate(streams):
            os.dup2(each, number)
            os.close(each)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        sys.argv[1:] = arguments
        added = folders_of(environment)
        sys.path[:1] = [folder, *(str(each) for each in added if str(each) not in sys.path)]
        ahead.forget_what_is_in([Path(folder), *added])
        if modules and arguments[:1] == ["functions"]:
            forked_workers.begin(ahead)
        for name in (module, f"{module}.__main__"):  # else runpy warns of what is imported already
            if not hasattr(sys.modules.get(name), "__path__"):
                sys.modules.pop(name, None)
        end_with(lambda: runpy.run_module(module, run_name="__main__", alter_sys=True))


if __name__ == "__main__":
    _serve(int(sys.argv[1]), sys.argv[2:])
