"""Work in a fork, and the project changed there: a function's code exchanged, or a file before it is imported."""

import ast
import gc
import importlib
import importlib.machinery
import inspect
import json
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from functools import _lru_cache_wrapper
from types import CodeType, FunctionType
from typing import Any

from tests.simulation.mutation.mutants import Mutant, mutated
from tests.support.paths import ROOT

Told = dict[str, Any]

_functions: dict[str, list[FunctionType]] = {}
"""All that there are in a process that has imported the world, by their file."""

_caches: dict[str, list[Any]] = {}
"""What remembers answers of functions, by their file."""

_changed: dict[str, CodeType] = {}
"""What files are, to whoever imports them, by their paths."""


def forked(work: Callable[[Callable[[Told], None]], None]) -> tuple[list[Told], int]:
    """Do the work in a fork. What it told, and its exit code: negative, a signal's.

    After it has told ``within`` it tells something in so many seconds, or is killed.
    """
    reading, writing = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(reading)
        code = 0
        try:
            with os.fdopen(writing, "w") as out:
                work(lambda told: print(json.dumps(told), file=out, flush=True))
        except BaseException as error:  # noqa: BLE001 - whatever it was, it ends here
            print(f"a fork broke off: {error!r}", file=sys.stderr)
            code = 1
        finally:
            os._exit(code)
    os.close(writing)
    told = [*_heard(reading, child)]
    os.close(reading)
    return told, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _heard(reading: int, child: int) -> Iterator[Told]:
    within, text = None, b""
    while True:
        if not select.select([reading], [], [], within)[0]:
            os.kill(child, signal.SIGKILL)
            return
        elif new := os.read(reading, 65536):
            *lines, text = (text + new).split(b"\n")
            for line in lines:
                told = json.loads(line)
                within = told.get("within")
                yield told
        else:
            return


def warm() -> None:
    """Import the world."""
    importlib.import_module("cosmos_outbox.testing.simulation.world")
    importlib.import_module("tests.simulation.contacts")
    for name in ("relay", "subscriber"):
        importlib.import_module(f"cosmos_outbox.worker.{name}")
    importlib.import_module("cosmos_outbox.servicebus.sessions")
    find_functions()


def find_functions() -> None:
    """From now on the code of what is imported can be exchanged."""
    _functions.clear()
    _caches.clear()
    gc.unfreeze()  # what is frozen is not listed
    gc.collect()
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__code__.co_filename.startswith(str(ROOT)):
            _functions.setdefault(each.__code__.co_filename, []).append(each)
        elif isinstance(each, _lru_cache_wrapper):
            code = getattr(inspect.unwrap(each), "__code__", None)
            _caches.setdefault(code.co_filename if code else "", []).append(each)
    gc.freeze()


def can_be_exchanged() -> bool:
    """Whether this process has imported the world."""
    return bool(_functions)


def exchange(file: str, tree: ast.Module, line: int) -> bool:
    """Give the live functions of a file, around that line, their changed code. False: it does not fit them."""
    path = str(ROOT / file)
    new = {(code.co_qualname, code.co_firstlineno): code for code in _codes(compile(tree, path, "exec"))}
    around = [each for each in _functions.get(path, ()) if _spans(each.__code__, line)]
    try:
        for function in around:
            function.__code__ = new[function.__code__.co_qualname, function.__code__.co_firstlineno]
    except (ValueError, KeyError):  # other variables are shared with an outer function
        return False
    for cache in _caches.get(path, ()):
        cache.cache_clear()
    return bool(around)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def _spans(code: CodeType, line: int) -> bool:
    return any(at == line for each in _codes(code) for *_, at in each.co_lines())


def before_import(file: str, code: CodeType) -> None:
    """When that file is imported, it is this code."""
    loader: Any = importlib.machinery.SourceFileLoader
    if not _changed:
        get = loader.get_code
        loader.get_code = lambda self, name: _changed.get(self.path) or get(self, name)
    _changed[str(ROOT / file)] = code


def install(mutant: Mutant) -> bool:
    source = (ROOT / mutant.file).read_text()
    tree = mutated(source, mutant.number)
    if mutant.warm and can_be_exchanged():
        return exchange(mutant.file, tree, mutant.line) or exchange(mutant.file, tree, mutant.statement)
    before_import(mutant.file, compile(tree, str(ROOT / mutant.file), "exec"))
    warm()
    return True


def run_seed(seed: int, patience: float | None = None) -> Any:
    from cosmos_outbox.testing.simulation.plan import SimulationPlan  # noqa: PLC0415 - the changed one
    from cosmos_outbox.testing.simulation.world import World, run  # noqa: PLC0415
    from tests.simulation.contacts import CONTACTS  # noqa: PLC0415

    if patience is not None:
        World.patience_seconds = patience
    return run(SimulationPlan.drawn(seed), CONTACTS)
