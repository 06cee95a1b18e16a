"""``python -m tests.torture.checkout --seconds 60 --seed 7``: exit code 1, and a line for each broken promise."""

import argparse
import asyncio
import random
import sys
import tempfile
from pathlib import Path

from tests.torture.checkout.story import TRANSPORTS, run


def main() -> int:
    """One run."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture.checkout")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--transport", choices=TRANSPORTS, default=TRANSPORTS[0])
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="torture-checkout-"))
    print(f"seed {given.seed}, logs in {folder}", flush=True)
    told = asyncio.run(run(folder, given.seconds, given.seed, given.transport))
    print(told)
    return 1 if told.violations else 0


if __name__ == "__main__":
    sys.exit(main())
