"""``python -m tests.torture.planted [NAME ...]``: plants each bug in a copy of the repository and tortures the copy.

Exit code 0: every bug was caught with every seed; 1: some were not; 2: a run was broken off. ``--unchanged`` runs the
same profiles and seeds without a bug: then every run must be good.
"""

from tools.required import require

if __name__ == "__main__":
    require("torture")

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path

from tests.support.paths import ROOT, python_path
from tests.torture.judge import BAD, GOOD
from tests.torture.planted_bugs import PLANTED, Planted

PATIENCE_SECONDS = 60.0
"""A copy without a bug is quiet long before."""

_VIOLATION = re.compile(r"^  ([a-z][a-z ,]+): ", flags=re.MULTILINE)


@dataclass(frozen=True)
class Run:
    """What came out of one run; ``seconds``: how long it took, its start and end included."""

    name: str
    seed: int
    exit_code: int
    rules: tuple[str, ...]
    """Of the violations, in alphabetical order."""
    seconds: float
    output: str

    def caught(self, bug: Planted) -> bool:
        """Whether a rule saw it that is about it."""
        return self.exit_code == BAD and not set(self.rules).isdisjoint(bug.rules)


def plant(bug: Planted, folder: Path) -> None:
    """Replace the code in a copy. Raises ValueError when it is not there once."""
    file = folder / bug.file
    text = file.read_text()
    if text.count(bug.old) != 1:
        raise ValueError(f"{bug.name}: what it replaces is not there once in {bug.file}: correct the list")
    file.write_text(text.replace(bug.old, bug.new))


def fits(bug: Planted) -> bool:
    """Whether it can be planted: what it replaces is there once, and Python reads what it makes of the file."""
    text = (ROOT / bug.file).read_text()
    compile(text.replace(bug.old, bug.new), bug.file, "exec")
    return text.count(bug.old) == 1


def seen(bug: Planted, folder: Path, test: str, seeds: int) -> None:
    """Run a test over seeds in a copy with the bug. Raises AssertionError where no rule sees it that is about it."""
    copy_tracked(folder)
    plant(bug, folder)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", f"--simulate-seeds={seeds}", test],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": python_path(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout
    assert any(rule in done.stdout for rule in bug.rules), done.stdout


def copy_tracked(folder: Path) -> None:
    """The files that git knows, as they are now, with their byte code: else each copy is compiled anew."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True)
    names = [name for name in listed.stdout.split("\0") if name]
    compiled = [cache_from_source(name) for name in names if name.endswith(".py")]
    for name in (*names, *compiled):
        source, target = ROOT / name, folder / name
        if source.is_file() or source.is_symlink():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)


def torture(
    bug: Planted, seed: int, seconds: float, *, unchanged: bool = False, keep: Path | None = None
) -> Run:
    """One run in a copy of its own."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="planted-") as temporary:
        copy = Path(temporary) / "repository"
        copy_tracked(copy)
        if not unchanged:
            plant(bug, copy)
        folder = Path(temporary) if keep is None else keep.resolve() / f"{bug.name}-{seed}"
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [
                *(sys.executable, "-m", "tests.torture", "--profile", bug.profile, "--seed", str(seed)),
                *("--seconds", f"{seconds:g}", "--patience", f"{PATIENCE_SECONDS:g}", "--end-early"),
                *([] if keep is None else ["--keep"]),
            ],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": python_path(copy), "TMPDIR": str(folder)},
            capture_output=True,
            text=True,
            check=False,
        )
    rules = tuple(sorted(set(_VIOLATION.findall(done.stdout))))
    output = done.stdout + done.stderr
    return Run(bug.name, seed, done.returncode, rules, time.monotonic() - began, output)


def table(runs: Sequence[Run]) -> str:
    """A Markdown table, as the documentation shows it."""
    rows = [
        f"| {run.name} | {run.seed} | {', '.join(run.rules) or 'none'} | {run.seconds:.0f} s |"
        for run in runs
    ]
    return "\n".join(["| bug | seed | caught by | after |", "| --- | --- | --- | --- |", *rows])


def main(argv: Sequence[str]) -> int:
    """Run, report, print the table."""
    arguments = _parse(argv)
    chosen = [bug for bug in PLANTED if not arguments.names or bug.name in arguments.names]
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    runs: list[Run] = []
    exit_code = GOOD
    for bug in _one_a_profile(chosen) if arguments.unchanged else chosen:
        for seed in seeds:
            what = "no bug" if arguments.unchanged else bug.name
            print(f"{what}, profile {bug.profile}, seed {seed}: ", end="", flush=True)
            run = torture(bug, seed, arguments.seconds, unchanged=arguments.unchanged, keep=arguments.keep)
            runs.append(run)
            good = run.exit_code == GOOD if arguments.unchanged else run.caught(bug)
            print(
                f"{'good' if good else 'NOT GOOD'} after {run.seconds:.0f} s: {', '.join(run.rules) or 'quiet'}"
            )
            if not good:
                print(run.output, flush=True)
                exit_code = max(exit_code, run.exit_code if run.exit_code not in (GOOD, BAD) else BAD)
    print(table(runs), flush=True)
    return exit_code


def _one_a_profile(bugs: Sequence[Planted]) -> list[Planted]:
    return list({bug.profile: bug for bug in bugs}.values())


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    names = [bug.name for bug in PLANTED]
    parser = argparse.ArgumentParser("python -m tests.torture.planted", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}; default: all")
    parser.add_argument("--seeds", default="1,2")
    parser.add_argument("--seconds", type=float, default=40.0, help="how long the faults of a run go on")
    parser.add_argument("--unchanged", action="store_true", help="plant nothing: every run must be good")
    parser.add_argument("--keep", type=Path, help="a folder for journals and logs")
    arguments = parser.parse_args(argv)
    if unknown := set(arguments.names) - set(names):
        parser.error(f"there is no {', '.join(sorted(unknown))}: take {', '.join(names)}")
    return arguments


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
