"""What is published is the app and nothing else, with exactly the locked packages.

    python -m tools.package [FOLDER]

The remote build of Azure Functions installs the ``requirements.txt`` that it finds in the package, and pip asks for a
hash of every package as soon as one has a hash. So the lock goes into the package under that name; in the checkout,
``requirements.txt`` says what the app needs. Only the standard library is used here: azd starts this with any Python.
https://github.com/microsoft/Oryx/blob/main/doc/runtimes/python.md
"""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = Path("deploy") / "requirements.lock"
DEFAULT = Path(".package") / "app"


def left_out(root: Path) -> list[str]:
    """The names that no package holds: those that the Core Tools leave out, and what a checkout keeps for itself."""
    lines = [line for file in (".funcignore", ".gitignore") for line in (root / file).read_text().split()]
    return [line.rstrip("/") for line in lines]


def make(root: Path, folder: Path) -> None:
    """Write the package of the app in ``root`` to ``folder``, anew. Raises ValueError when it is another folder."""
    if folder.exists() and not (folder / "host.json").exists():
        raise ValueError(f"{folder} is no package of a function app: name a folder that may be replaced")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(root, folder, ignore=shutil.ignore_patterns(*left_out(root)))
    shutil.copyfile(root / LOCK, folder / "requirements.txt")


def main(arguments: Sequence[str]) -> int:
    """Make the package and say where it is."""
    folder = ROOT / (arguments[0] if arguments else DEFAULT)
    try:
        make(ROOT, folder)
    except (OSError, ValueError) as error:
        print(f"package: {error}", file=sys.stderr)
        return 1
    print(f"The package is in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
