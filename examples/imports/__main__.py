"""The program on a local Azure of its own, in one command: ``python -m examples.imports``; Ctrl-C stops both."""

import os
import subprocess
import sys
from pathlib import Path

import uvicorn

PORT = 8000


def main() -> None:
    """Start the local Azure, then serve."""
    command = [sys.executable, "-m", "devstack", "--no-functions", f"--app={Path(__file__).parent}"]
    os.environ.setdefault("STORAGEQUEUE_QUEUES", "import-jobs")
    # A session of its own: Ctrl-C ends the program first, which then still has its store.
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as azure:  # noqa: S603 - our own
        assert azure.stdout is not None
        for line in azure.stdout:
            print(line, end="")
            name, _, value = line.strip().partition("=")
            if name in ("COSMOS", "STORAGEQUEUE"):
                os.environ[name] = value
            if line.startswith("Ready"):
                try:
                    uvicorn.run("examples.imports.app:app", port=int(os.environ.get("PORT", PORT)))
                finally:
                    azure.terminate()


if __name__ == "__main__":
    main()
