"""A settings file is read whole or refused with one line that says what to mend: nothing is half understood.

The format is the ``local.settings.json`` of the Azure Functions Core Tools, ``{"IsEncrypted": false,
"Values": {...}}`` with texts for values, and ``"Host": {"CORS": "...", "CORSCredentials": false}`` for the host itself
(https://learn.microsoft.com/azure/azure-functions/functions-develop-local#local-settings-file).
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devstack.service import CannotStart

OWN, SAMPLE = "local.settings.json", "local.settings.sample.json"
KEYS_FILE = "keys.json"
"""In the data folder of a Functions host that asks for keys: the keys."""


def default_file(app: Path) -> Path | None:
    """The developer's own settings when there are any, else the sample that comes with the app, else none."""
    return next((app / name for name in (OWN, SAMPLE) if (app / name).exists()), None)


def sample_file(app: Path) -> Path | None:
    """The sample that comes with the app, if one does: what tests go by, whatever the developer's own settings are."""
    return app / SAMPLE if (app / SAMPLE).exists() else None


def read_values(file: Path | None) -> dict[str, str]:
    """The settings in ``Values``; none where there is no file.

    Raises :class:`CannotStart` when the file cannot be read, is not JSON, is encrypted or has a value that is
    no text.
    """
    if file is None:
        return {}
    content = _parse(file)
    values = content.get("Values") if isinstance(content, dict) else None
    if not isinstance(values, dict):
        raise CannotStart(f'{file}: there is no "Values" object; compare it with {SAMPLE}')
    if content.get("IsEncrypted"):
        raise CannotStart(
            f'{file}: the settings are encrypted; run "func settings decrypt" or copy {SAMPLE} over it'
        )
    for name, value in values.items():
        if not isinstance(value, str):
            raise CannotStart(f'{file}: the value of "{name}" is not a text; put it in double quotes')
    return values


@dataclass(frozen=True)
class HostSection:
    """The file's settings of the host itself."""

    cors: str = ""
    """Origins whose pages may call, with commas between them."""
    cors_credentials: bool = False


def read_host(file: Path | None) -> HostSection:
    """The part ``Host``; what is not there is as nobody had asked for it. Raises :class:`CannotStart`."""
    content = _parse(file) if file else {}
    section = content.get("Host", {}) if isinstance(content, dict) else {}
    host = section if isinstance(section, dict) else {"CORS": None}
    cors, credentials = host.get("CORS", ""), str(host.get("CORSCredentials", False)).lower()
    if not isinstance(cors, str) or credentials not in ("true", "false"):
        raise CannotStart(
            f'{file}: set "Host" to an object with CORS, a text of origins with commas between them, and '
            "CORSCredentials, true or false"
        )
    return HostSection(cors, credentials == "true")


_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
"""A comment, as the func tool allows it, or in the first group a text, in which there is none."""


def _parse(file: Path) -> Any:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise CannotStart(f"{file}: not UTF-8 at byte {error.start}; save it as UTF-8") from error
    except OSError as error:
        raise CannotStart(
            f"{file}: cannot read the settings ({error.strerror}); "
            f"copy {SAMPLE} to {OWN} or name a file with --settings"
        ) from error
    try:
        return json.loads(_COMMENT.sub(lambda found: found[1] or re.sub(r"[^\n]", " ", found[0]), text))
    except json.JSONDecodeError as error:
        raise CannotStart(
            f"{file}: not JSON at line {error.lineno}, column {error.colno} ({error.msg}); "
            f"compare it with {SAMPLE}"
        ) from error
    except RecursionError as error:
        raise CannotStart(f"{file}: nested too deeply; compare it with {SAMPLE}") from error
