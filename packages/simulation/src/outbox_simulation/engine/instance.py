"""Whatever runs in a simulation belongs to one instance, or to the world outside: its own context says to which.

An instance stands for a process. A crash is that nothing of it runs again: no ``finally``, no ``except``, as after
SIGKILL. What it had sent goes on, since a server's half of a request runs in a context of the world
(:meth:`Loop.outside`).
"""

import asyncio
from collections.abc import Callable
from contextvars import Context, ContextVar
from typing import Any, TypeVar
from weakref import WeakSet

T = TypeVar("T")


class SimulatedInstance:
    """One process: a name, and whether it is there. A process that is begun again is a new instance."""

    def __init__(self, name: str, context: Context) -> None:
        """``context``: what its code begins with; it is copied."""
        self.name = name
        self.alive = True
        self.paused = False
        self.held: list[asyncio.Handle] = []
        """What became ready while the instance was paused, in order."""
        self.tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        self.begun: WeakSet[asyncio.Task[Any]] = WeakSet()
        """Those that were begun from outside: its main work, and requests."""
        self.graveyard: list[object] = []
        """What must not be collected before the end: to collect a coroutine is to run its ``finally``."""
        self.context = context.copy()
        self.context.run(current.set, self)

    def within(self, call: Callable[[], T]) -> T:
        """Call as code of this instance, without a task."""
        return self.context.copy().run(call)

    def __repr__(self) -> str:
        state = "paused" if self.paused else "alive"
        return f"<{self.name}: {state if self.alive else 'dead'}>"


current: ContextVar[SimulatedInstance | None] = ContextVar("instance", default=None)
"""Whose code runs; None: the world's."""


def name_of_current() -> str:
    """The name of the instance whose code runs; ``world``: nobody's."""
    instance = current.get()
    return "world" if instance is None else instance.name
