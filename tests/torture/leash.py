"""``python -m tests.torture.leash MODULE ARGUMENT ...`` runs a module that ends at the latest with its stdin."""

import os
import runpy
import sys
import threading


def _end_with_stdin() -> None:
    while os.read(0, 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
