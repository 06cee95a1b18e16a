"""Builds the distributions of a release, and tests them where nothing else is installed; it publishes nothing.

    python -m tools.release [--tag v1.2.3]

``dist/`` has the wheels, the sdists, and ``NOTES.md``: its section of CHANGELOG.md. A tag that differs is refused.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from tools.required import require

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
PROJECTS = [ROOT, *sorted(file.parent for file in ROOT.glob("packages/*/pyproject.toml"))]
CHANGES = ROOT / "CHANGELOG.md"


class NotReady(Exception):
    """The release cannot be made: the message says what to do."""


def version_of_all() -> str:
    """Returns the one version of all distributions. Raises NotReady."""
    found = {
        str(folder.relative_to(ROOT)): tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))
        for folder in PROJECTS
    }
    versions = {name: content["project"]["version"] for name, content in found.items()}
    if len(set(versions.values())) != 1:
        raise NotReady(
            f"the distributions have different versions, {versions}: give them one in each pyproject.toml"
        )
    return str(versions["."])


def notes(version: str, changes: str) -> str:
    """Returns the section of a version. Raises NotReady."""
    section = re.search(
        rf"^## \[{re.escape(version)}\] - .*?\n(.*?)(?=^## |\Z)", changes, re.MULTILINE | re.DOTALL
    )
    if section is None or not section[1].strip():
        raise NotReady(f"CHANGELOG.md has no section for {version}: write it, as ## [{version}] - YYYY-MM-DD")
    return section[1].strip() + "\n"


def check_tag(tag: str | None, version: str) -> None:
    """Check that the tag is that of the version. Raises NotReady."""
    if tag not in (None, f"v{version}"):
        raise NotReady(
            f"the tag is {tag}, and the packages have {version}: tag v{version}, or raise the version"
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Build and test, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="release", description="Build and test the distributions; publish nothing."
    )
    parser.add_argument("--tag", help="of the release, which must be of the version in pyproject.toml")
    arguments = parser.parse_args(argv)
    try:
        version = version_of_all()
        check_tag(arguments.tag, version)
        text = notes(version, CHANGES.read_text("utf-8"))
    except NotReady as error:
        print(f"release: {error}", file=sys.stderr)
        return 2
    shutil.rmtree(DIST, ignore_errors=True)
    print(f"release: building {version} into dist/", flush=True)
    for folder in PROJECTS:
        build = [sys.executable, "-m", "uv", "build", "--quiet", "--out-dir", str(DIST), str(folder)]
        subprocess.run(build, check=True)  # noqa: S603 - our own folders
    (DIST / "NOTES.md").write_text(text, "utf-8")
    print("release: testing them where nothing else is installed: some minutes", flush=True)
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "long", "tests/commands/test_wheels.py"],
        cwd=ROOT, env={**os.environ, "BUILT_DISTRIBUTIONS": str(DIST)}, check=False,
    )  # fmt: skip
    return tested.returncode


if __name__ == "__main__":
    require("python -m tools.release")
    sys.exit(main())
