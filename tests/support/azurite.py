"""Azurite, Microsoft's own Blob Storage for a laptop, from npm: as ``make azurite`` has it, for one test."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The well-known one."""
_STARTS_WITHIN_SECONDS = 180.0
"""npm may have to get it first."""


@contextmanager
def azurite(folder: Path) -> Iterator[str]:
    """Its connection string, until the block ends."""
    installed = shutil.which("azurite-blob")
    command = [installed] if installed else ["npx", "--yes", "--package=azurite@3", "azurite-blob"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--silent", "--skipApiVersionCheck", "--disableTelemetry", "--blobHost", "127.0.0.1"]
    log = folder / "azurite.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, *options, "--blobPort", str(port), "--location", str(folder / "azurite")],
            stdout=output,
            stderr=output,
        )
        try:
            _wait(port, process, log)
            yield (
                f"DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey={_KEY};"
                f"BlobEndpoint=http://127.0.0.1:{port}/devstoreaccount1;"
            )
        finally:
            process.terminate()
            process.wait(20)


def _wait(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    until = time.monotonic() + _STARTS_WITHIN_SECONDS
    while time.monotonic() < until:
        assert process.poll() is None, f"Azurite has ended: {log.read_text()}"
        with socket.socket() as asking:
            if asking.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(f"Azurite does not answer: {log.read_text()}")
