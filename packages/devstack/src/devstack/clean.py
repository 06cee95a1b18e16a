"""``devstack clean`` forgets what a stack stored, never under a stack that runs, and nothing else.

It needs the standard library alone, so it works before anything is installed.
"""

import argparse
import contextlib
import os
import shutil
import sys
from pathlib import Path

from devstack.service import CannotStart, locked_folder

SERVICES = ("cosmos", "servicebus", "storage", "functions")


def main(arguments: list[str]) -> int:
    """Remove the services' folders in DEVSTACK_DATA (default: ``.devstack`` in the app's folder); the exit code."""
    parser = argparse.ArgumentParser(prog="devstack clean", description=__doc__)
    parser.add_argument("--app", type=Path, default=Path(), metavar="FOLDER", help="default: this folder")
    data = Path(os.environ.get("DEVSTACK_DATA") or parser.parse_args(arguments).app / ".devstack")
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
    sys.exit(main(sys.argv[1:]))
