"""Who may call a function is decided by the key that the call carries, as Azure's host decides it.

A master key opens everything; the host's own key and a function's own key open functions of the level "function". The
header is looked at first, and the query only where there is no header. A key that fits nothing is like no key: an
anonymous function runs all the same. So read in ``AuthenticationLevelHandler`` and ``FunctionInvocationMiddleware`` of
azure-functions-host.
"""

import fcntl
import hmac
import json
import os
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from aiohttp import web

from devstack.functions.indexing import FunctionInfo
from devstack.local_settings import KEYS_FILE
from devstack.service import CannotStart

HEADER, QUERY = "x-functions-key", "code"
MASTER_SETTING, FUNCTION_SETTING = "DEVSTACK_MASTER_KEY", "DEVSTACK_FUNCTION_KEY"


class Level(IntEnum):
    """What a call may do; a function asks for one of them."""

    ANONYMOUS = 0
    FUNCTION = 1
    ADMIN = 2


@dataclass(frozen=True)
class Keys:
    """The keys of one app."""

    master: str = field(repr=False)
    host: str = field(repr=False)
    """Opens every function of the level "function"."""
    functions: Mapping[str, str] = field(repr=False)
    """Each opens one function."""

    def level(self, request: web.Request, function: str) -> Level:
        """What this call may do."""
        given = request.headers.get(HEADER)
        if given is None:
            given = next((value for name, value in request.query.items() if name.lower() == QUERY), "")
        if _same(given, self.master):
            return Level.ADMIN
        if _same(given, self.host) or _same(given, self.functions.get(function, "")):
            return Level.FUNCTION
        return Level.ANONYMOUS


def wanted(function: FunctionInfo) -> Level:
    """The level that a function asks for; "function" unless it says another."""
    level = function.trigger.get("authLevel")
    return Level[str(getattr(level, "value", level) or "function").upper()]


def read_keys(folder: Path, functions: Iterable[str], environment: Mapping[str, str]) -> Keys:
    """The keys in ``folder``, where hosts of one app share them; what is missing is made and kept.

    Two settings take the place of the master key and the host's key. Raises CannotStart for a file that is no use.
    """
    file = folder / KEYS_FILE
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{KEYS_FILE}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = _kept(file)
        keys = Keys(
            master=environment.get(MASTER_SETTING) or kept.master or _made(),
            host=environment.get(FUNCTION_SETTING) or kept.host or _made(),
            functions={name: kept.functions.get(name) or _made() for name in sorted(functions)},
        )
        if keys != kept:
            _write(file, keys)
    return keys


def _kept(file: Path) -> Keys:
    if not file.exists():
        return Keys("", "", {})
    try:
        found = json.loads(file.read_text())
        return Keys(str(found["master"]), str(found["default"]), dict(found["functions"]))
    except (ValueError, KeyError, TypeError) as error:
        raise CannotStart(f"functions: {file} cannot be read; delete it, and new keys are made") from error


def _write(file: Path, keys: Keys) -> None:
    """In one step, and for this user's eyes."""
    new = file.with_suffix(".new")
    content = {"master": keys.master, "default": keys.host, "functions": keys.functions}
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as written:
        json.dump(content, written, indent=2)
    new.replace(file)


def _made() -> str:
    return secrets.token_urlsafe(30)


def _same(given: str, key: str) -> bool:
    return bool(key) and hmac.compare_digest(given.encode(errors="surrogateescape"), key.encode())
