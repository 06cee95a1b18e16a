"""An event loop in virtual time: when no handle is ready, time jumps to the next timer.

One seed, one order: the next of the ready handles is drawn from the seed's ``random.Random``. Without
one they run first in, first out, as asyncio promises; a finding is confirmed in that order. Each handle belongs to the
instance of its context: a dead one's are never run, a paused one's are held back.
"""

import asyncio
import contextvars
import gc
import heapq
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from types import AsyncGeneratorType, CoroutineType
from typing import Any, ClassVar, TypeVar, TypeVarTuple, Unpack
from weakref import WeakKeyDictionary, WeakSet

from outbox_simulation.engine.crash import close, last_words_unheard
from outbox_simulation.engine.guard import Guard, guarded
from outbox_simulation.engine.instance import SimulatedInstance, current

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

STEPS_WITHOUT_TIME = 200_000
"""The most steps at one moment; more are a loop that never waits."""

_CANCELLED_TIMERS = 500

Network = Callable[..., Awaitable[tuple[Any, Any]]]


class Stuck(Exception):
    """Nothing is ready and no timer runs; or a task never waits."""


class Loop(asyncio.BaseEventLoop):
    """An event loop in virtual time. It has no socket, thread, signal or process."""

    _ready: list[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _stopping: bool
    _timer_cancelled_count: int
    _asyncgens: WeakSet[AsyncGeneratorType[Any, Any]]
    _others_freeze: ClassVar[bool] = False
    """Whether other code had frozen objects, checked once: counting them takes longer than a short run."""

    def __init__(self, pick: random.Random | None = None, *, network: Network | None = None) -> None:
        """``pick``: draws the next handle; None: first in, first out. ``network``: serves ``create_connection``."""
        super().__init__()
        self._ready = []
        self._now = 0.0
        self._pick = pick
        self.network = network
        self._root = contextvars.copy_context()
        self._root.run(current.set, None)
        self._over = False
        self._guard = Guard()
        self.steps = 0
        """The number of handles that have run."""
        self._steps_before = 0
        self.complaints: list[str] = []
        """The errors that asyncio passed to its exception handler: nobody had retrieved them."""
        self.interruption: BaseException | None = None
        """An interruption from outside, such as pytest's time limit, that a task has suppressed."""
        self.at_the_end: list[Callable[[], object]] = []
        """Called after the cleanup: they release what the process would keep of this run."""
        self._dead: list[SimulatedInstance] = []
        self._contexts: WeakKeyDictionary[asyncio.Task[Any], contextvars.Context] = WeakKeyDictionary()
        """The contexts of tasks, which Python 3.11 does not show."""
        self.set_exception_handler(_complain)

    # -- time

    def time(self) -> float:
        """Seconds since the run began."""
        return self._now

    # -- instances

    def outside(self) -> contextvars.Context:
        """Returns a context of the world: code in it belongs to no instance, and outlives them all."""
        return self._root.copy()

    def root_is_now(self) -> None:
        """Makes the caller's context the base of the world's own from now on."""
        self._root = contextvars.copy_context()
        self._root.run(current.set, None)

    def begin(self, instance: SimulatedInstance, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Runs the work as this instance's."""
        task = self.create_task(work, context=instance.context.copy())
        instance.begun.add(task)
        return task

    def crash(self, instance: SimulatedInstance) -> None:
        """Ends the instance: nothing of it runs again."""
        instance.alive = False
        instance.graveyard.extend(instance.tasks)
        instance.graveyard.extend(instance.held)
        instance.held.clear()
        self._dead.append(instance)

    def pause(self, instance: SimulatedInstance, seconds: float) -> None:
        """Pauses the instance; afterwards its timers and the answers to it come all at once."""

        def resume() -> None:
            instance.paused = False
            self._ready.extend(instance.held)
            instance.held.clear()

        if instance.alive and not instance.paused:
            instance.paused = True
            self.call_later(seconds, resume, context=self.outside())

    # -- running

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Runs the world to the end of ``main``, guarded; then closes every remaining coroutine, and the loop."""
        collected = gc.isenabled()
        Loop._others_freeze = Loop._others_freeze or gc.get_freeze_count() > 0
        gc.disable()  # the time of a collection depends on what ran in this process before
        if Loop._others_freeze:
            gc.collect()  # no garbage must be frozen for good
        gc.freeze()  # the collection after the run then skips older objects
        try:
            with guarded() as self._guard:
                task = self.create_task(main, context=self._root)
                try:
                    return self.run_until_complete(task)
                finally:
                    self._bury()
        finally:
            with last_words_unheard():
                for forget in self.at_the_end:
                    forget()
                self.close()
                self._dead.clear()
                gc.collect()
            if not Loop._others_freeze:  # keep others' frozen objects: traversing them takes a second
                gc.unfreeze()
            if collected:
                gc.enable()

    def create_task(  # type: ignore[override]  # its parameters grow with each Python
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
        **options: Any,
    ) -> asyncio.Task[T]:
        """Creates a task as the base does; its instance keeps it."""
        context = contextvars.copy_context() if context is None else context
        task: asyncio.Task[T] = asyncio.Task(coro, loop=self, name=name, context=context, **options)
        instance = context.get(current)
        if instance is not None:
            instance.tasks.add(task)
        self._contexts[task] = context
        return task

    def _run_once(self) -> None:
        if not self._ready:
            self._pass_time()
        self._take_due()
        ready, pick = self._ready, self._pick
        for _ in range(len(ready)):
            self._run_handle(ready.pop(0) if pick is None else _drawn(ready, pick))
        if self.steps - self._steps_before > STEPS_WITHOUT_TIME:
            raise Stuck(
                f"{STEPS_WITHOUT_TIME} steps at {self._now} s: somebody never waits; next are {ready[:3]}"
            )

    def _run_handle(self, handle: asyncio.Handle) -> None:
        if handle.cancelled():
            return
        instance: SimulatedInstance | None = handle._context.get(current)  # type: ignore[attr-defined]  # noqa: SLF001
        if instance is not None and (not instance.alive or instance.paused):
            (instance.held if instance.alive else instance.graveyard).append(handle)
            return
        self.steps += 1
        handle._run()  # noqa: SLF001 - as the base does
        self._guard.check()
        if self.interruption is not None:
            raise self.interruption

    def _pass_time(self) -> None:
        timers = self._scheduled
        if self._timer_cancelled_count > _CANCELLED_TIMERS:
            self._forget_cancelled()
        while timers and timers[0].cancelled():
            self._timer_cancelled_count -= 1
            heapq.heappop(timers)._scheduled = False  # type: ignore[attr-defined]  # noqa: SLF001
        if not timers:
            raise Stuck(f"at {self._now} s nobody has anything to do, and no timer runs")
        self._now = max(self._now, timers[0].when())
        self._steps_before = self.steps

    def _forget_cancelled(self) -> None:
        left = []
        for timer in self._scheduled:
            if timer.cancelled():
                timer._scheduled = False  # type: ignore[attr-defined]  # noqa: SLF001
            else:
                left.append(timer)
        heapq.heapify(left)
        self._scheduled[:] = left
        self._timer_cancelled_count = 0

    def _take_due(self) -> None:
        timers = self._scheduled
        while timers and (timers[0].cancelled() or timers[0].when() <= self._now):
            timer = heapq.heappop(timers)
            timer._scheduled = False  # type: ignore[attr-defined]  # noqa: SLF001
            if timer.cancelled():
                self._timer_cancelled_count -= 1
            else:
                self._ready.append(timer)

    # -- the end

    def _bury(self) -> None:
        """Closes every remaining coroutine, wherever it stands; handles that become ready then never run."""
        self._over = True
        # A generator's awaitable is not closed with the coroutine that iterates the generator.
        generators = list(self._asyncgens)
        awaited = [waits for each in generators if isinstance(waits := each.ag_await, CoroutineType)]
        with last_words_unheard(), self._as_the_running_one():
            for task in asyncio.all_tasks(self):
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
                self._contexts[task].run(close, task.get_coro())  # resets its context variables
            for coroutine in awaited:
                close(coroutine)

    @contextmanager
    def _as_the_running_one(self) -> Iterator[None]:
        """Marks this loop as running: a ``finally`` that gathers would otherwise open a loop of its own."""
        asyncio._set_running_loop(self)  # noqa: SLF001 - as a loop does while it runs
        try:
            yield
        finally:
            asyncio._set_running_loop(None)  # noqa: SLF001 - as a loop does while it runs

    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Calls as the base does; does nothing after the world's end."""
        handle = asyncio.Handle(callback, args, self, context)
        if not self._over:
            self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Calls it directly: there is one thread."""
        return self.call_soon(callback, *args, context=context)

    def _asyncgen_finalizer_hook(self, agen: AsyncGeneratorType[Any, Any]) -> None:
        """Finalizes as the base does; after the world's end nobody would await the closing task."""
        if self._over:
            self._asyncgens.discard(agen)
        else:
            super()._asyncgen_finalizer_hook(agen)  # type: ignore[misc]  # the stubs do not have it

    # -- not supported

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Raises RuntimeError: a thread would run in real time."""
        raise RuntimeError(f"{func} was to run in a thread, which a simulation does not have")

    async def create_connection(self, protocol_factory: Any, *args: Any, **options: Any) -> Any:
        """Connects by the given network. Raises RuntimeError without one."""
        if self.network is None:
            raise RuntimeError(f"a connection to {args} was wanted in a simulation without a network")
        return await self.network(protocol_factory, *args, **options)

    def _process_events(self, event_list: Any) -> None:
        """Does nothing: there is no selector."""

    def _write_to_self(self) -> None:
        """Does nothing: there is no other thread to wake."""


def _complain(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    assert isinstance(loop, Loop)
    if loop._over or _of_an_sdk(context.get("future")):  # noqa: SLF001 - of the same module
        return
    error = context.get("exception")
    if error is not None and not isinstance(error, Exception):
        loop.interruption = error
        return
    complaint = f"{context.get('message')}: {error!r}" if error is not None else str(context.get("message"))
    loop.complaints.append(complaint)


def _of_an_sdk(task: object) -> bool:
    """Whether it is azure-cosmos's task that refreshes endpoints, abandoned by ``_global_endpoint_manager_async``."""
    code = getattr(task.get_coro(), "cr_code", None) if isinstance(task, asyncio.Task) else None
    return code is not None and "azure" in Path(code.co_filename).parts


def _drawn(ready: list[asyncio.Handle], pick: random.Random) -> asyncio.Handle:
    index = int(pick.random() * len(ready))
    ready[index], ready[-1] = ready[-1], ready[index]
    return ready.pop()
