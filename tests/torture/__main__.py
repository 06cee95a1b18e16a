"""``python -m tests.torture --seconds 60 --seed 7``: exit code 0: no violation; 1: violations; 2: broken off."""

from tools.required import require

if __name__ == "__main__":
    require("torture")

import argparse
import asyncio
import logging
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

from tests.support.paths import ROOT
from tests.torture.judge import GOOD
from tests.torture.plan import PROFILES
from tests.torture.run import PATIENCE_SECONDS, Options, run
from tests.torture.summary import summary


def main(argv: list[str]) -> int:
    """Run, print the table; the folder with logs and journals stays when there is something to look for."""
    arguments = _parse(argv)
    logging.getLogger("azure").setLevel(logging.CRITICAL)  # an outage is no news here
    seed = secrets.randbelow(1_000_000) if arguments.seed is None else arguments.seed
    folder = Path(tempfile.mkdtemp(prefix="torture-"))
    print(f"torture: {arguments.seconds:g} s, seed {seed}, logs and journals in {folder}", flush=True)
    report = asyncio.run(
        run(
            Options(
                folder,
                arguments.seconds,
                seed,
                arguments.app.resolve(),
                arguments.profile,
                arguments.patience,
                arguments.end_early,
            )
        )
    )
    print(summary(report), flush=True)
    if report.verdict.exit_code == GOOD and not arguments.keep:
        shutil.rmtree(folder)
    return report.verdict.exit_code


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.torture", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the faults go on")
    parser.add_argument("--seed", type=int, help="the same seed plans the same faults; default: a random one")
    parser.add_argument("--app", type=Path, default=ROOT, help="the folder of another function_app.py")
    parser.add_argument("--profile", choices=sorted(PROFILES), default="everything")
    parser.add_argument(
        "--patience", type=float, default=PATIENCE_SECONDS, help="seconds to wait for what is late"
    )
    parser.add_argument(
        "--end-early", action="store_true", help="end at the first violation that no wait can mend"
    )
    parser.add_argument("--keep", action="store_true", help="keep logs and journals of a good run too")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
