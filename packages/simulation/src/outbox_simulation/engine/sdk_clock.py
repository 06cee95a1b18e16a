"""Gives the Azure SDKs the product's time and ids: in a simulation those of the instance whose code runs.

The SDKs call ``time.time`` and ``uuid.uuid4`` of their modules. Those names are replaced in the modules of the SDKs
alone, once in a process, by ones that ask :mod:`cosmos_outbox.kernel.clock`: outside a simulation the system's clock.
So is ``typing.Awaitable``, by the class that it stands for, and ``os.environ``, which the SDKs ask some dozen times for
each request: both answer the same in a tenth of the time.
"""

import functools
import importlib
import os
import pkgutil
import platform
import random
import sys
import time
import typing
import uuid
import warnings
from collections.abc import Awaitable, Iterator, Mapping
from email.utils import formatdate
from types import ModuleType
from typing import Any

from cosmos_outbox.kernel import clock

PACKAGES = ("azure.cosmos", "azure.core.pipeline")
"""The packages whose modules are patched."""


class _InPlaceOf:
    """A module of the standard library with some functions replaced."""

    def __init__(self, module: ModuleType, **own: Any) -> None:
        self._module = module
        self.__dict__.update(own)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


class _Environment(Mapping[str, str]):
    """``os.environ`` as it is now, read with names that are encoded once in a process."""

    def __getitem__(self, name: str) -> str:
        value = os.environ._data[_encoded(name)]  # type: ignore[attr-defined]  # noqa: SLF001 - what it looks in
        return os.environ.decodevalue(value)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and _encoded(name) in os.environ._data  # type: ignore[attr-defined]  # noqa: SLF001

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401 - that is what it is

    def __iter__(self) -> Iterator[str]:
        return iter(os.environ)

    def __len__(self) -> int:
        return len(os.environ)


@functools.cache
def _encoded(name: str) -> Any:
    return os.environ.encodekey(name)


_ENVIRONMENT = _Environment()


def _time() -> float:
    return clock.utc_now().timestamp()


def _http_date(timeval: float | None = None, *, localtime: bool = False, usegmt: bool = False) -> str:
    return _formatted(int(_time() if timeval is None else timeval), localtime=localtime, usegmt=usegmt)


@functools.lru_cache(maxsize=64)
def _formatted(second: int, *, localtime: bool, usegmt: bool) -> str:
    """Formats a time once a second: all requests of a second have one date."""
    return formatdate(second, localtime, usegmt)


def _uniform(low: float, high: float) -> float:
    return clock.randomness().uniform(low, high)


def _random() -> float:
    return clock.randomness().random()


def _randint(low: int, high: int) -> int:
    return clock.randomness().randint(low, high)


REPLACED: dict[int, Any] = {
    id(time): _InPlaceOf(time, time=_time, monotonic=clock.monotonic, perf_counter=clock.monotonic),
    id(uuid): _InPlaceOf(uuid, uuid4=clock.new_id, uuid1=clock.new_id),
    id(os): _InPlaceOf(os, environ=_ENVIRONMENT, getenv=_ENVIRONMENT.get),
    id(random): _InPlaceOf(random, random=_random, uniform=_uniform, randint=_randint),
    id(time.time): _time,
    id(uuid.uuid4): clock.new_id,
    id(formatdate): _http_date,
    id(typing.Awaitable): Awaitable,
}


@functools.cache
def install(*packages: str) -> None:
    """Replaces them in all modules of these SDKs, or of PACKAGES: those too that are imported late."""
    packages = packages or PACKAGES
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # some old modules are deprecated
        for package in packages:
            found = importlib.import_module(package)
            for module in pkgutil.walk_packages(found.__path__, f"{package}."):
                _import(module.name)
    for name, loaded in list(sys.modules.items()):
        if name.startswith(packages):
            for attribute, value in list(vars(loaded).items()):
                if id(value) in REPLACED:
                    setattr(loaded, attribute, REPLACED[id(value)])
    platform.platform()  # the SDKs' user agent asks the system, once in a process


def _import(name: str) -> None:
    try:
        importlib.import_module(name)
    except ImportError:  # a module of an extra that is not installed is never called
        return
