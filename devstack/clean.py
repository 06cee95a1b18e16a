"""``python -m devstack.clean`` forgets what a stack stored, never under a stack that runs, and nothing else.

It needs the standard library alone, so it works before anything is installed.
"""

import contextlib
import os
import shutil
import sys
from pathlib import Path

from devstack.service import CannotStart, locked_folder

SERVICES = ("cosmos", "servicebus")


def main() -> int:
    """Remove the services' folders in DEVSTACK_DATA (default ``.devstack``); the exit code."""
    data = Path(os.environ.get("DEVSTACK_DATA") or Path(__file__).resolve().parents[1] / ".devstack")
    folders = [data / service for service in SERVICES if (data / service).is_dir()]
    try:
        with contextlib.ExitStack() as locks:
            for folder in folders:
                locks.enter_context(locked_folder("clean", folder))
            for folder in folders:
                shutil.rmtree(folder)
    except CannotStart as problem:
        print(problem, file=sys.stderr)
        return 2
    except OSError as error:
        print(f"clean: cannot remove {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    with contextlib.suppress(OSError):  # not empty: there are things in it that are not ours
        data.rmdir()
    print(f"Forgotten: {', '.join(map(str, folders))}" if folders else f"Nothing to forget in {data}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
