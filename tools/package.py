"""Packages the app and its locked packages for the app's Python on Linux: nothing is built in Azure.

    .venv/bin/python -m tools.package [FOLDER]

The remote build of Azure Functions has taken another Python than the app's, and packages that are compiled for one
Python cannot be imported by another (https://github.com/Azure/azure-dev/issues/8538). So the packages are installed
here, in the folder that the Functions worker reads, from the lock and with its hashes. uv does so, on any system: pip
evaluates the markers of a lock for the Python that it runs on, whatever its options.

APP_PYTHON_VERSION names the Python: an output of deploy/main.bicep, whose default holds when the variable is not set.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = Path("deploy") / "requirements.txt"
DEFAULT = Path(".package") / "app"
PACKAGES = Path(".python_packages") / "lib" / "site-packages"
"""https://learn.microsoft.com/azure/azure-functions/functions-reference-python#folder-structure"""
PLATFORM = "x86_64-manylinux_2_28"
"""Flex Consumption runs on x86-64, and each of its images has glibc 2.31 or later."""


def left_out(root: Path) -> list[str]:
    """Returns the names that no package holds: those that the Core Tools leave out, and a checkout's own files."""
    lines = [line for file in (".funcignore", ".gitignore") for line in (root / file).read_text().split()]
    return [line.rstrip("/") for line in lines]


def python_of_the_app(root: Path) -> str:
    """Returns the version of the deployment, such as 3.12. Raises ValueError if it may have no such version."""
    bicep = (root / "deploy" / "main.bicep").read_text()
    found = re.search(
        r"^@allowed\(\[([^\]]*)\]\)\n(?:@.*\n)*param pythonVersion string = '([^']*)'", bicep, re.MULTILINE
    )
    assert found, "deploy/main.bicep declares pythonVersion"
    allowed, chosen = re.findall(r"'([^']*)'", found[1]), os.environ.get("APP_PYTHON_VERSION") or found[2]
    if chosen not in allowed:
        raise ValueError(
            f"APP_PYTHON_VERSION is {chosen}: set it to the output of the deployment, one of {', '.join(allowed)}"
        )
    return chosen


def uv() -> str:
    """Returns the path of uv. Raises ValueError if it is not there."""
    near = [Path(sys.executable).parent, ROOT / ".venv" / "bin", ROOT / ".venv" / "Scripts"]
    found = shutil.which("uv", path=os.pathsep.join([*map(str, near), os.environ.get("PATH", "")]))
    if found is None:
        raise ValueError(
            f"uv is not there: run make venv and use .venv/bin/python, or {sys.executable} -m pip install uv"
        )
    return found


def make(root: Path, folder: Path, python: str, platform: str = PLATFORM) -> None:
    """Writes the package of the app in ``root`` to ``folder``, replacing the one before.

    Raises:
        ValueError: ``folder`` is another folder, uv is not there, or the packages cannot be had.
    """
    if folder.exists() and not (folder / "host.json").exists():
        raise ValueError(f"{folder} is no package of a function app: name a folder that may be replaced")
    program = uv()
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(root, folder, ignore=shutil.ignore_patterns(*left_out(root)))
    shutil.copyfile(root / LOCK, folder / "requirements.txt")
    command = [
        program,
        "pip",
        "install",
        "--quiet",
        "--no-config",
        "--link-mode",
        "copy",
        "--target",
        str(folder / PACKAGES),
    ]
    command += ["--python-version", python, "--python-platform", platform]
    command += ["--require-hashes", "--only-binary", ":all:", "--requirements", str(root / LOCK)]
    if subprocess.run(command, check=False).returncode != 0:  # noqa: S603  # our own command: no shell, no foreign text
        raise ValueError(
            f"the packages of {LOCK} could not be installed for Python {python}: read uv's message above"
        )
    (folder / PACKAGES / ".lock").unlink(missing_ok=True)


def main(arguments: Sequence[str]) -> int:
    """Makes the package and prints its path."""
    folder = ROOT / (arguments[0] if arguments else DEFAULT)
    try:
        python = python_of_the_app(ROOT)
        make(ROOT, folder, python)
    except (OSError, ValueError) as error:
        print(f"package: {error}", file=sys.stderr)
        return 1
    print(f"The package for Python {python} is in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
