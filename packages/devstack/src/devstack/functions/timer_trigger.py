"""A timer fires on one host of several, and never overlaps itself: its next time is reckoned when a run has ended.

Unlike the real host, this one keeps no record between runs, so nothing is ever past due.
"""

import asyncio
import json
import logging
from datetime import UTC, datetime
from pathlib import Path

from azure.functions import meta

from devstack.functions.execution import Executor, StoppedWaiting
from devstack.functions.indexing import FunctionInfo
from devstack.functions.invocation import Input, Invoker
from devstack.functions.listener import Running, Stop
from devstack.functions.logs import logged_as
from devstack.functions.schedule import UnsupportedSchedule, parse_schedule
from devstack.functions.settings import resolve
from devstack.functions.singleton import held
from devstack.service import CannotStart

_log = logging.getLogger(__name__)


class TimerTrigger:
    """Runs one function on a schedule; a listener."""

    def __init__(self, function: FunctionInfo, invoker: Invoker, data: Path) -> None:
        expression = resolve(
            str(function.trigger.get("schedule") or ""), where=f"the timer of {function.name}"
        )
        try:
            self._schedule = parse_schedule(expression)
            self._next = self._schedule.next_after(datetime.now(UTC))
        except UnsupportedSchedule as error:
            raise CannotStart(f"functions: the timer of {function.name}: {error}") from error
        self._at_start = bool(function.trigger.get("runOnStartup"))
        self._function = function
        self._data = data
        self._executor = Executor(function, invoker)
        self._running = Running()
        self._stopped = False
        self._last: datetime | None = None
        self._task: asyncio.Task[object] | None = None
        self._asked: set[asyncio.Task[None]] = set()
        """Runs out of turn."""

    @property
    def name(self) -> str:
        """The function's."""
        return self._function.name

    def run_now(self) -> None:
        """One run out of turn, on this host, whether or not another one is under way: as when an administrator asks."""
        task = asyncio.create_task(self._run_out_of_turn())
        self._asked.add(task)
        task.add_done_callback(self._asked.discard)

    async def run(self) -> None:
        self._task = asyncio.current_task()
        with logged_as(self._function.name):
            async with held(self._data, self._function.name):
                await self._run_alone()

    async def _run_alone(self) -> None:
        if self._at_start:
            await self._fire()
        while not self._stopped:
            now = datetime.now(UTC)
            self._next = self._schedule.next_after(now)
            await asyncio.sleep((self._next - now).total_seconds())
            await self._fire()

    async def _run_out_of_turn(self) -> None:
        with logged_as(self._function.name):
            await self._fire()

    async def stop(self, stop: Stop) -> None:
        self._stopped = True
        self._executor.stop_retrying()
        tasks = [*self._asked] if self._task is None else [self._task, *self._asked]
        if running := [task for task in tasks if task in self._running]:
            await asyncio.wait(running, timeout=stop.seconds)
        for task in tasks:
            task.cancel()

    async def _fire(self) -> None:
        now = datetime.now(UTC)
        status = {
            "Last": _json_time(self._last or datetime.min.replace(tzinfo=UTC)),
            "Next": _json_time(self._schedule.next_after(now)),
            "LastUpdated": _json_time(self._last or datetime.min.replace(tzinfo=UTC)),
        }
        info = {"Schedule": {"AdjustForDST": True}, "ScheduleStatus": status, "IsPastDue": False}
        datum = meta.Datum(json.dumps(info), "json")
        self._last = now
        try:
            with self._running.invocation():
                await self._executor.execute(Input(datum))
        except StoppedWaiting:
            _log.debug("stopped before the next retry")


def _json_time(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
