"""What a Dockerfile says is done in an empty virtual environment and an empty folder: no others are there."""

import json
import os
import shlex
import shutil
import subprocess
import venv
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.paths import ROOT


@dataclass
class Image:
    """As it is built in a folder; of the instructions those that ours have."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    command: Sequence[str] = ()

    @property
    def root(self) -> Path:
        """Its WORKDIR."""
        return self.folder / "app"

    def build(self, dockerfile: Path) -> None:
        """Raises AssertionError where a command fails, KeyError for an instruction that is not known."""
        venv.create(self.folder / "venv", with_pip=True)
        self.root.mkdir()
        self.environment = {"PATH": f"{self.folder / 'venv' / 'bin'}{os.pathsep}/usr/bin:/bin"}
        for line in dockerfile.read_text().splitlines():
            name, _, said = line.partition(" ")
            if not line or name == "#":
                continue
            {"FROM": self._ignore, "WORKDIR": self._ignore, "USER": self._ignore, "COPY": self._copy, "RUN": self._run,
             "ENV": self._set, "CMD": self._begin}[name](said)  # fmt: skip

    def _ignore(self, _: str) -> None: ...

    def _copy(self, said: str) -> None:
        source, target = said.split()
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, self.root / target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / source, self.root / target)

    def _run(self, said: str) -> None:
        pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        done = subprocess.run(
            shlex.split(said), cwd=self.root, env=self.environment | {"HOME": str(Path.home())} | pip,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{said}\n{done.stdout}\n{done.stderr}"

    def _set(self, said: str) -> None:
        name, _, value = said.partition("=")
        self.environment[name] = value

    def _begin(self, said: str) -> None:
        self.command = json.loads(said)
