"""Measures what a new process spends until it is of use: on its imports, its first answer, its first event.

All in processor time of the process itself, which other programs on the machine hardly change.
"""

import asyncio
import resource
import statistics
import subprocess
import sys
from pathlib import Path

import aiohttp

import function_app
from devstack.testing import Process, Service, eventually
from tests.support.contacts import DETAILS_JSON
from tools.benchmarks.bed import ROOT, Bed, backlog
from tools.benchmarks.cosmos import server_cpu
from tools.benchmarks.measured import Part, Row
from tools.benchmarks.relaying import NewBed, Say

SDKS = "import azure.functions, azure.cosmos.aio, azure.servicebus.aio, azure.identity.aio, pydantic"
BARE_APP = Path(__file__).parent / "bare_app"
_REPEATS = 5


async def imports(new_bed: NewBed, say: Say) -> Part:
    """Measures the import of the function app, and of the SDKs."""
    say("start: imports")
    times = [
        [_processor_time(program) for program in ("import function_app", SDKS)] for _ in range(_REPEATS + 1)
    ]
    return Part([_row("import of function_app", "the SDKs and pydantic", times, 1.0)], [])


async def first_posts(new_bed: NewBed, say: Say) -> Part:
    """Measures the functions worker from its start to its first answered POST.

    The functions without HTTP are off on both sides: on Flex Consumption they have instances of their own.
    """
    say("start: process start to the first answered POST")
    times = [[await _first_post(new_bed(), app) for app in (ROOT, BARE_APP)] for _ in range(_REPEATS + 1)]
    return Part(
        [_row("process start to the first answered POST", "an app with the SDK alone", times, 1.3)], []
    )


async def first_events(new_bed: NewBed, say: Say) -> Part:
    """Measures the relay worker from its start to its first event."""
    say("start: process start to the first relayed event")
    programs = ["-m", "cosmos_outbox", "relay"], ["-m", "tools.benchmarks.bare"]
    times = [[await _first_event(new_bed(), program) for program in programs] for _ in range(_REPEATS + 1)]
    return Part(
        [_row("process start to the first relayed event", "a script with the SDKs alone", times, 1.3)], []
    )


def _row(name: str, bare: str, times: list[list[float]], wanted: float) -> Row:
    """The first pair is left out: it may compile what it imports."""
    kept = times[1:]
    mine, theirs = (statistics.median(column) * 1000 for column in zip(*kept, strict=True))
    ratio = statistics.median(ours / other for ours, other in kept)
    return Row(
        f"{name}, processor time", f"{mine:.0f} ms", f"{theirs:.0f} ms: {bare}", ratio, wanted, at_most=True
    )


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
    settings |= {f"AzureWebJobs.{name}.Disabled": "true" for name in _not_http()}
    data = bed.folder / f"functions-{bed.database}"
    host = Service(
        "functions", data, f"--app={app}", f"--settings={empty}", "--stop-seconds=1", environment=settings
    )
    await asyncio.to_thread(host.start)
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{host.address.rstrip('/')}/api/contacts", json=DETAILS_JSON) as answer,
        ):
            assert answer.status == 201, await answer.text()
            return server_cpu(_worker_of(host.pid))
    finally:
        await asyncio.to_thread(host.terminate)


def _worker_of(host: int) -> int:
    [child] = Path(f"/proc/{host}/task/{host}/children").read_text().split()
    return int(child)


def _not_http() -> list[str]:
    return [
        str(each.get_function_name())
        for each in function_app.app.get_functions()
        if (trigger := each.get_trigger()) is not None and trigger.get_binding_name() != "httpTrigger"
    ]


async def _first_event(bed: Bed, program: list[str]) -> float:
    await bed.deploy()
    await bed.store(backlog(1, 1))
    before = (await bed.traffic())["messages"]
    command = [sys.executable, *program]
    process = Process("program", bed.folder / "program.log", command, bed.settings, ROOT).start()

    async def has_sent() -> bool:
        return (await bed.traffic())["messages"] > before

    try:
        await eventually(has_sent, within=60, what="an event is sent")
        return server_cpu(process.pid)
    finally:
        process.terminate()
