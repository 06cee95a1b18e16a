"""Azurite never outlives this process, and this process does not outlive Azurite."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from pathlib import Path

from devstack.azurite import azurite
from devstack.service import CannotStart, locked_folder, port_errors

STOP_SECONDS = 0.5
"""What it has to write down what it holds in memory; the supervisor waits for little more."""
_LOOK_SECONDS = 0.05

_log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def serving(blob_port: int, queue_port: int, data: Path) -> AsyncIterator[str]:
    """Serve; yields the addresses of blobs and queues. Raises CannotStart."""
    program = await asyncio.to_thread(azurite)
    with locked_folder("storage", data):
        ports = _free(blob_port, "AZURITE_BLOB_PORT"), _free(queue_port, "AZURITE_QUEUE_PORT")
        process = await _begin(program, ports, data)
        try:
            await _until_ready(process, ports)
            ending = asyncio.create_task(_end_with(process))
            try:
                yield " ".join(f"http://127.0.0.1:{port}" for port in ports)
            finally:
                ending.cancel()
        finally:
            await _stop(process)


def _free(port: int, setting: str) -> int:
    """The port itself, or any free one: Azurite does not say which one it has taken."""
    with socket.socket() as asking, port_errors("storage", port, setting):
        asking.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        asking.bind(("127.0.0.1", port))
        return int(asking.getsockname()[1])


async def _begin(program: list[str], ports: tuple[int, int], data: Path) -> Process:
    blob, queue = ports
    options = ["--silent", "--disableTelemetry", "--skipApiVersionCheck", f"--location={data}"]
    options += [f"--{name}Host=127.0.0.1" for name in ("blob", "queue", "table")]
    options += [f"--blobPort={blob}", f"--queuePort={queue}", "--tablePort=0"]
    return await asyncio.create_subprocess_exec(*program, *options, stdin=DEVNULL, stdout=2)


async def _until_ready(process: Process, ports: tuple[int, int]) -> None:
    for port in ports:
        while not await _answers(port):
            if process.returncode is not None:
                raise CannotStart(
                    f"storage: Azurite ended with exit code {process.returncode}: see its output"
                )
            await asyncio.sleep(_LOOK_SECONDS)


async def _answers(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


async def _end_with(process: Process) -> None:
    code = await process.wait()
    _log.error("Azurite ended with exit code %s", code)
    os.kill(os.getpid(), signal.SIGTERM)


async def _stop(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
