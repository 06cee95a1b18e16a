"""A timer fires on its schedule, at the start when asked to, and ends with the host."""

import asyncio
import time
from pathlib import Path

from devstack.testing import eventually
from functions.support import host, make_host, recorded


async def test_a_timer_fires_at_the_start_and_then_every_second(tmp_path: Path) -> None:
    file = tmp_path / "record"
    with host(tmp_path / "host", "bus", {"BINDINGS": "timer", "RECORD": str(file)}) as service:
        await eventually(lambda: len(recorded(file)) >= 3)

    assert {(call["what"], call["past_due"]) for call in recorded(file)} == {("timer", False)}
    assert "Traceback" not in service.log.read_text()


async def test_a_stop_waits_for_the_running_function_and_no_longer(tmp_path: Path) -> None:
    file = tmp_path / "record"
    settings = {"BINDINGS": "timer", "RECORD": str(file), "TIMER_SECONDS": "1"}
    service = make_host(tmp_path / "host", "bus", settings, "--drain-seconds=9").start()
    await eventually(lambda: recorded(file))
    begun = time.monotonic()
    assert await asyncio.to_thread(service.terminate) == 0

    assert time.monotonic() - begun < 7
    assert len(recorded(file)) == 1
    assert "cut off" not in service.log.read_text()
