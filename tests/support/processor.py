"""A reader of the change feed that does as a test says, for those who begin and end one."""

import asyncio
from dataclasses import dataclass, field
from typing import Any


def now() -> float:
    return asyncio.get_running_loop().time()


@dataclass
class Processor:
    """A reader of the feed: what befalls it, and what was done with it."""

    fails: list[Exception] = field(default_factory=list)
    """At its starts."""
    page_seconds: float = 0.0
    """The page in hand takes so long."""
    started: list[float] = field(default_factory=list)
    stopped: list[bool] = field(default_factory=list)
    """Whether it was waited for, each time."""
    woken: int = 0
    pulses: list[Any] = field(default_factory=list)
    owned_leases: frozenset[str] = frozenset({"0"})
    missing_ranges: tuple[Any, ...] = ()
    given: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)

    def __call__(self, *given: Any, **options: Any) -> "Processor":
        self.given, self.options = given, options
        return self

    async def start(self) -> None:
        self.started.append(now())
        if self.fails:
            raise self.fails.pop(0)

    async def stop(self, *, drain: bool = True) -> None:
        self.stopped.append(drain)
        if drain:
            await asyncio.sleep(self.page_seconds)

    def wake(self) -> None:
        self.woken += 1
