"""Which seed runs which line, how often, and what a seed costs: made once, by the unchanged code."""

import ast
import builtins
import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.simulation.mutation.forks import Told, before_import, forked, run_seed, warm
from tests.simulation.mutation.mutants import Mutant
from tests.support.paths import ROOT

KEPT = ROOT / ".mutation"
SEEDS = 24
FOLDERS = (
    "cosmos_outbox/outbox", "cosmos_outbox/inbox", "cosmos_outbox/cosmos/store", "cosmos_outbox/cosmos/aggregates",
    "cosmos_outbox/cosmos/relay", "cosmos_outbox/cosmos/inbox", "cosmos_outbox/servicebus", "cosmos_changefeed",
)  # fmt: skip
"""What is looked at."""


@dataclass(frozen=True)
class Reached:
    """Which seeds run which lines, how often, and what a seed costs."""

    seconds: Mapping[int, float]
    traces: Mapping[int, str]
    drains: Mapping[int, float]
    """How long it takes in virtual time until all is as it must be."""
    lines: Mapping[str, Mapping[int, Mapping[int, int]]]
    """Of a file, of a line: how often by seed."""

    def seeds(self, mutant: Mutant) -> list[int]:
        """Those that run it, the most telling for their time first."""
        if not mutant.warm:
            return sorted(self.seconds, key=lambda seed: self.seconds[seed])
        lines = self.lines.get(mutant.file, {})
        hits = lines.get(mutant.line) or lines.get(mutant.statement) or {}
        return sorted(hits, key=lambda seed: -min(hits[seed], 20) / self.seconds[seed])


def the_map(files: Sequence[str]) -> Reached:
    """Made once for all files that are ever asked for, and anew for one that has changed."""
    kept = KEPT / "reached.json"
    told = json.loads(kept.read_text()) if kept.exists() else {"hashes": {}, "runs": []}
    if any(told["hashes"].get(file) != hash_of(file) for file in files):
        files = sorted({*files, *(each for folder in FOLDERS for each in files_in(ROOT / folder))})
        print(f"which of {SEEDS} seeds runs which line of {len(files)} file(s)?", flush=True)
        runs = counted(files, range(1, SEEDS + 1))
        told = {"hashes": {file: hash_of(file) for file in files}, "runs": runs}
        kept.write_text(json.dumps(told))
    runs = [each for each in told["runs"] if not each["broken"]]
    lines: dict[str, dict[int, dict[int, int]]] = {}
    for each in runs:
        for file, counts in each["lines"].items():
            for line, times in counts.items():
                lines.setdefault(file, {}).setdefault(int(line), {})[each["seed"]] = times
    of = {name: {each["seed"]: each[name] for each in runs} for name in ("seconds", "trace", "drain")}
    return Reached(of["seconds"], of["trace"], of["drain"], lines)


def hash_of(file: str) -> str:
    """Of what it says now."""
    return hashlib.sha256((ROOT / file).read_bytes()).hexdigest()[:12]


def files_in(path: Path) -> list[str]:
    """The modules of a folder, or the one that it is."""
    paths = sorted(path.glob("*.py")) if path.is_dir() else [path]
    return [each.relative_to(ROOT).as_posix() for each in paths]


def counted(files: Sequence[str], seeds: Iterable[int]) -> list[Told]:
    """Run the unchanged code, and count statements."""

    def work(tell: Callable[[Told], None]) -> None:
        counts = count(files)
        warm()
        for seed in seeds:
            began = time.process_time()
            result = run_seed(seed)
            tell(
                {
                    "seed": seed,
                    "seconds": time.process_time() - began,
                    "drain": result.seconds - result.plan.seconds,
                    "trace": result.trace.digest(),
                    "broken": len(result.violations),
                    "lines": {file: dict(lines) for file, lines in counts.items()},
                }
            )
            for each in counts.values():
                each.clear()

    told, code = forked(work)
    if code:
        raise SystemExit("the unchanged code cannot be run")
    return told


def count(files: Sequence[str]) -> dict[str, Counter[int]]:
    """From when they are imported on, these files count how often each statement of a function runs, by its line."""
    counts: dict[str, Counter[int]] = {}
    for number, file in enumerate(files):
        name = f"__ran_{number}__"
        counts[file] = Counter()
        setattr(builtins, name, counts[file])
        tree = _Counting(name).visit(ast.parse((ROOT / file).read_text()))
        before_import(file, compile(ast.fix_missing_locations(tree), str(ROOT / file), "exec"))
    return counts


class _Counting(ast.NodeTransformer):
    """Each statement inside a function counts itself."""

    def __init__(self, name: str) -> None:
        self._name, self._depth = name, 0

    def visit(self, node: ast.AST) -> Any:
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        self._depth += inside
        super().generic_visit(node)
        if self._depth:
            for block in ("body", "orelse", "finalbody"):
                body = getattr(node, block, None)
                if isinstance(body, list) and body:
                    setattr(node, block, [each for one in body for each in (*self._count(one), one)])
            if isinstance(node, ast.ExceptHandler):
                node.body[:0] = self._count(node)
        self._depth -= inside
        return node

    def _count(self, node: ast.stmt | ast.ExceptHandler) -> list[ast.stmt]:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return []  # the docstring stays first
        return ast.parse(f"{self._name}[{node.lineno}] += 1").body
