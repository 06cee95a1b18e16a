"""Measures how long a process takes to be of use: its imports, its first answer, its first event."""

import asyncio
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import aiohttp

from devstack.testing import Process, Service
from tests.support.contacts import DETAILS_JSON
from tools.benchmarks.bed import ROOT, Bed, backlog
from tools.benchmarks.measured import Part, Row
from tools.benchmarks.relaying import NewBed, Say

SDKS = "import azure.functions, azure.cosmos.aio, azure.servicebus.aio, azure.identity.aio, pydantic"
BARE_APP = Path(__file__).parent / "bare_app"
_REPEATS = 3


async def starts(new_bed: NewBed, say: Say) -> Part:
    """Measures each of the three several times, ours and the bare one in turn."""
    say("start: imports")
    imports = await asyncio.to_thread(_imports)
    say("start: process start to the first answered POST")
    posts = [[await _first_post(new_bed(), app) for app in (ROOT, BARE_APP)] for _ in range(_REPEATS)]
    say("start: process start to the first relayed event")
    ours, bare = ["-m", "cosmos_outbox", "relay"], ["-m", "tools.benchmarks.bare"]
    events = [[await _first_event(new_bed(), program) for program in (ours, bare)] for _ in range(_REPEATS)]
    return Part(
        [
            _row("import of function_app, processor time", "the SDKs and pydantic", imports, 1.15),
            _row("process start to the first answered POST", "an app with the SDK alone", posts, 1.5),
            _row("process start to the first relayed event", "a script with the SDKs alone", events, 1.5),
        ],
        [],
    )


def _row(name: str, bare: str, times: list[list[float]], wanted: float) -> Row:
    mine, theirs = (statistics.median(column) * 1000 for column in zip(*times, strict=True))
    return Row(name, f"{mine:.0f} ms", f"{theirs:.0f} ms: {bare}", mine / theirs, wanted, at_most=True)


def _imports() -> list[list[float]]:
    return [[_processor_time(program) for program in ("import function_app", SDKS)] for _ in range(5)]


def _processor_time(program: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)  # noqa: S603 - our own
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


async def _first_post(bed: Bed, app: Path) -> float:
    await bed.deploy()
    empty = bed.folder / "no.settings.json"
    empty.write_text('{"Values": {}}')
    settings = bed.settings | {
        "COSMOS_CONTAINER": "contacts",
        "COSMOS_LEASE_CONTAINER": "leases",
        "COSMOS_PARKED_CONTAINER": "parked-events",
        "SERVICEBUS_SUBSCRIPTION": bed.topic.subscription,
        "FUNCTIONS_WORKER_RUNTIME": "python",
        "PYTHONPATH": str(ROOT),
    }
    data = bed.folder / f"functions-{bed.database}"
    host = Service(
        "functions", data, f"--app={app}", f"--settings={empty}", "--stop-seconds=1", environment=settings
    )
    began = time.perf_counter()
    await asyncio.to_thread(host.start)
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{host.address.rstrip('/')}/api/contacts", json=DETAILS_JSON) as answer,
        ):
            assert answer.status == 201, await answer.text()
            return time.perf_counter() - began
    finally:
        await asyncio.to_thread(host.terminate)


async def _first_event(bed: Bed, program: list[str]) -> float:
    await bed.deploy()
    await bed.store(backlog(1, 1))
    watching = asyncio.create_task(bed.arrivals(1))
    await asyncio.sleep(0.1)  # lets the watcher read the count at the start
    began = time.perf_counter()
    command = [sys.executable, *program]
    process = Process("program", bed.folder / "program.log", command, bed.settings, ROOT).start()
    try:
        return (await watching).times[0] - began
    finally:
        process.terminate()
