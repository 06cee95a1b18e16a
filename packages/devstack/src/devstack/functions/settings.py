"""A setting that the app names and that is not there is found before the first function runs, and named.

Settings come from the environment; the settings file only fills in what the environment does not have, as
with ``func start``.
"""

import logging
import os
import re
from datetime import UTC, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

from devstack.local_settings import read_values
from devstack.service import CannotStart

REWRITE_SETTING = "DEVSTACK_REWRITE_TEXTS"
TIME_ZONE_SETTINGS = ("TZ", "WEBSITE_TIME_ZONE")

BODY_SETTING = "FUNCTIONS_REQUEST_BODY_SIZE_LIMIT"
MAX_BODY_BYTES = 100 * 1024 * 1024
"""https://learn.microsoft.com/azure/azure-functions/functions-bindings-http-webhook-trigger#limits"""

_log = logging.getLogger(__name__)
_PLACEHOLDER = re.compile(r"%([^%]+)%")


def apply_settings_file(file: Path) -> None:
    """Put the file's values into this process's environment; what is there already wins. Raises
    CannotStart.
    """
    for name, value in read_values(file).items():
        # An empty variable counts as unset.
        if not os.environ.get(name):
            os.environ[name] = value


def resolve(text: str, *, where: str) -> str:
    """Replace each ``%Name%`` by the setting. Raises CannotStart when there is no such setting."""

    def setting(match: re.Match[str]) -> str:
        value = os.environ.get(match.group(1))
        if not value:
            raise CannotStart(
                f"functions: {where} uses %{match.group(1)}%; set {match.group(1)} in the settings"
            )
        return value

    return _PLACEHOLDER.sub(setting, text)


def max_body_bytes() -> int:
    """How long a request's body may be; a setting that is no number is ignored, as the host does."""
    text = (os.environ.get(BODY_SETTING) or "").strip()
    return int(text) if text.isascii() and text.isdigit() else MAX_BODY_BYTES


def rewrites_texts() -> bool:
    """Whether documents reach functions with their dates written anew. Raises CannotStart."""
    text = os.environ.get(REWRITE_SETTING) or "true"
    if text.lower() not in ("true", "false"):
        raise CannotStart(f"functions: {REWRITE_SETTING} is {text!r}; set it to true or false")
    return text.lower() == "true"


def host_time_zone() -> tzinfo:
    """The host's local time: UTC, as in Azure, unless the settings name another zone."""
    for setting in TIME_ZONE_SETTINGS:
        if name := os.environ.get(setting):
            try:
                return ZoneInfo(name)
            except (KeyError, ValueError, OSError):
                _log.warning(
                    "%s is %r, which this machine does not know: UTC is used; "
                    "set a name like Europe/Berlin, or install tzdata",
                    setting,
                    name,
                )
                break
    return UTC


def is_disabled(function: str) -> bool:
    """Whether the settings switch the function off; .NET compares their names without regard to case."""
    names = (f"azurewebjobs.{function}.disabled".lower(), f"azurewebjobs_{function}_disabled".lower())
    return any(
        variable.lower() in names and value.lower() in ("1", "true") for variable, value in os.environ.items()
    )
