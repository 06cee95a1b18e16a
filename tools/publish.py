"""Uploads the package to a deployment's function apps, and starts them with it.

    az login && .venv/bin/python -m tools.publish [FOLDER]

FOLDER is the output of tools.package. `func azure functionapp publish` and `azd deploy` have an app write its own code,
which no app may (deploy/modules/packages.bicep). So the identity that is signed in with az uploads it, under the name
that Flex Consumption looks for, restarts the apps, and has their triggers read again.

AZURE_RESOURCE_GROUP names the resource group; PACKAGES_ACCOUNT, FUNCTION_APP_NAME and WORKERS_APP_NAME are outputs of
deploy/main.bicep. Exit code 0: both apps start with the code; 1: not; 2: a variable is missing.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tools.package import DEFAULT

APPS = {"FUNCTION_APP_NAME": "api", "WORKERS_APP_NAME": "workers"}
"""The output with the name of each app, and the container of its code."""
BLOB = "released-package.zip"
"""https://learn.microsoft.com/azure/azure-functions/functions-infrastructure-as-code"""
VERSION = "2024-04-01"
PAUSES = (30, 60, 120, 240, 300)
"""Pauses in seconds: a role that the deployment has granted takes minutes to work."""


def az(*arguments: str) -> str:
    """Returns the output of a command of the Azure CLI. Raises CalledProcessError."""
    program = shutil.which("az") or "az"
    ended = subprocess.run([program, *arguments], check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603 - az
    return ended.stdout.strip()


def upload(archive: Path, account: str, container: str, pauses: Sequence[float] = PAUSES) -> None:
    """Uploads the archive over the one before. Raises CalledProcessError if every attempt was refused."""
    for pause in (*pauses, None):
        try:
            az("storage", "blob", "upload", "--auth-mode", "login", "--account-name", account, "--container-name",
               container, "--name", BLOB, "--file", str(archive), "--overwrite", "--output", "none")  # fmt: skip
        except subprocess.CalledProcessError:
            if pause is None:
                raise
            print(
                f"publish: refused, and tried again in {pause:g} s: a new role takes minutes to work",
                flush=True,
            )
            time.sleep(pause)
        else:
            return


def start(app: str, group: str) -> None:
    """Starts an app with its new code. Raises CalledProcessError."""
    az("functionapp", "restart", "--name", app, "--resource-group", group)
    home = az(
        "functionapp", "show", "--name", app, "--resource-group", group, "--query", "id", "--output", "tsv"
    )
    az("rest", "--method", "post", "--url", f"{home}/syncfunctiontriggers?api-version={VERSION}")


def publish(folder: Path, environment: Mapping[str, str], pauses: Sequence[float] = PAUSES) -> int:
    """Publishes to both apps, and returns the exit code."""
    wanted = ("AZURE_RESOURCE_GROUP", "PACKAGES_ACCOUNT", *APPS)
    if missing := [name for name in wanted if not environment.get(name)]:
        print(f"publish: set {', '.join(missing)}: outputs of the deployment", file=sys.stderr)
        return 2
    try:
        with TemporaryDirectory() as place:
            archive = Path(shutil.make_archive(str(Path(place) / "package"), "zip", folder))
            for container in APPS.values():
                upload(archive, environment["PACKAGES_ACCOUNT"], container, pauses)
        for name in APPS:
            start(environment[name], environment["AZURE_RESOURCE_GROUP"])
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"publish: {error}", file=sys.stderr)
        return 1
    print(f"publish: {' and '.join(environment[name] for name in APPS)} start with {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(publish(Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT, os.environ))
