"""Assigns all code of a simulation to one instance, or to the world outside, by its context.

An instance stands for a process. After a crash nothing of it runs again: no ``finally``, no ``except``, as after
SIGKILL. Its sent requests go on, since a server's half of a request runs in a context of the world
(:meth:`Loop.outside`).
"""

import asyncio
from collections.abc import Callable
from contextvars import Context, ContextVar
from typing import Any, TypeVar
from weakref import WeakSet

T = TypeVar("T")


class SimulatedInstance:
    """One process: a name, and whether it lives. A process that is restarted is a new instance."""

    def __init__(self, name: str, context: Context) -> None:
        """``context``: the context of its code; it is copied."""
        self.name = name
        self.alive = True
        self.paused = False
        self.held: list[asyncio.Handle] = []
        """The handles that became ready while the instance was paused, in order."""
        self.tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        self.begun: WeakSet[asyncio.Task[Any]] = WeakSet()
        """The tasks begun from outside: its main work, and requests."""
        self.graveyard: list[object] = []
        """Objects that must not be collected before the end: collecting a coroutine runs its ``finally``."""
        self.context = context.copy()
        self.context.run(current.set, self)

    def within(self, call: Callable[[], T]) -> T:
        """Calls as code of this instance, without a task."""
        return self.context.copy().run(call)

    def __repr__(self) -> str:
        state = "paused" if self.paused else "alive"
        return f"<{self.name}: {state if self.alive else 'dead'}>"


current: ContextVar[SimulatedInstance | None] = ContextVar("instance", default=None)
"""The instance whose code runs; None: the world."""


def name_of_current() -> str:
    """Returns the name of the instance whose code runs; ``world``: none."""
    instance = current.get()
    return "world" if instance is None else instance.name
