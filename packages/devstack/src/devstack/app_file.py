"""``devstack.toml`` says what an app needs; it is read whole or refused with one line that says what to mend.

The file declares containers, topics with their subscriptions, queues, and what Azurite holds. In a name,
``%SETTING%`` stands for a setting of the app, with the default that the ``[settings]`` table gives it. The README of
devstack explains each key.
"""

import importlib
import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from devstack.service import CannotStart

NAME = "devstack.toml"
_REFERENCE = re.compile(r"%(\w+)%")
_DURATION = re.compile(r"P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?")


def _path_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _yes_or_no(value: Any) -> Any:
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower(), value)
    return value


def _iso_8601(value: str) -> str:
    if not _DURATION.fullmatch(value):
        raise PydanticCustomError(
            "duration", "{value} is no ISO 8601 duration; write PT30S, PT5M or P1D", {"value": repr(value)}
        )
    return value


Switch = Annotated[bool, BeforeValidator(_yes_or_no)]
"""``true`` or ``false``; as text too, which is how a setting has it."""

Duration = Annotated[str, AfterValidator(_iso_8601)]
"""Days, hours, minutes and seconds, such as ``PT1M``."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _Named(_Part):
    name: str = Field(min_length=1)
    setting: str | None = None
    """The setting that the name comes from, for a message about it; None when the file has the name itself."""

    @property
    def rename(self) -> str:
        """What to do when something else has this name."""
        return f"name another one in {self.setting or NAME}"


class Container(_Named):
    """``partition_key`` has several paths for a hierarchical key; ``ttl`` is the default of its items, in seconds.

    ``indexes`` are the paths that are indexed, such as ``/city/?``; None: the service's own choice, which is all.
    ``composite_indexes`` are the properties, ascending, of each ORDER BY over several of them.
    """

    database: str = Field(min_length=1)
    partition_key: Annotated[list[str], BeforeValidator(_path_list)] = Field(min_length=1, max_length=3)
    ttl: int | None = None
    indexes: list[str] | None = None
    composite_indexes: list[list[str]] = []


class Queue(_Named):
    """The names are those of Azure's Python SDK, the durations ISO 8601; what is not given, the service decides."""

    requires_session: Switch = False
    requires_duplicate_detection: Switch = False
    duplicate_detection_history_time_window: Duration | None = None
    lock_duration: Duration | None = None
    max_delivery_count: int | None = None
    default_message_time_to_live: Duration | None = None
    dead_lettering_on_message_expiration: Switch | None = None


class Subscription(_Named):
    """As :class:`Queue`."""

    requires_session: Switch = False
    lock_duration: Duration | None = None
    max_delivery_count: int | None = None
    default_message_time_to_live: Duration | None = None
    dead_lettering_on_message_expiration: Switch | None = None


class Topic(_Named):
    """As :class:`Queue`."""

    requires_duplicate_detection: Switch = False
    duplicate_detection_history_time_window: Duration | None = None
    default_message_time_to_live: Duration | None = None
    enable_partitioning: Switch | None = None
    subscriptions: list[Subscription] = []


class Cosmos(_Part):
    """``connection``: the setting through which the app finds Cosmos DB."""

    connection: str = "COSMOS"
    containers: list[Container] = []


class ServiceBus(_Part):
    """``connection``: the setting through which the app finds Service Bus."""

    connection: str = "SERVICEBUS"
    topics: list[Topic] = []
    queues: list[Queue] = []


class Storage(_Part):
    """``connection``: the setting through which the app finds Blob and Queue Storage, the host's own by default."""

    connection: str = "AzureWebJobsStorage"
    queues: list[str] = []
    blob_containers: list[str] = []


class Functions(_Part):
    """``path`` is where the app's API is, ``try`` the line to paste; ``{url}`` in it is the address with the path.

    ``pages`` are paths to open in a browser, each by a name; ``web`` is a folder with a web page that calls the app.
    """

    path: str = "/"
    pages: dict[str, str] = {}
    web: str = ""
    line_to_try: str = Field(default="", alias="try")


class Derived(_Part):
    """``by`` is a module of the app's: its ``derive(source, settings)`` returns more of this file."""

    by: str
    source: str = Field(alias="from")


class App(_Part):
    """What one app needs, with every name resolved."""

    settings: dict[str, str] = {}
    cosmos: Cosmos = Cosmos()
    servicebus: ServiceBus = ServiceBus()
    storage: Storage = Storage()
    functions: Functions = Functions()


def read_app(folder: Path, values: Mapping[str, str]) -> App:
    """The ``devstack.toml`` in ``folder``; ``values`` are the app's settings. Raises :class:`CannotStart`."""
    file = folder / NAME
    content = _parse(file)
    defaults = content.get("settings", {})
    if not isinstance(defaults, dict):
        raise CannotStart(
            f'{file}: "settings" is not a table; write [settings] and one NAME = "default" a line'
        )
    given = {name: value for name, value in values.items() if value}
    derived = (
        _derive(content.pop("derived"), folder, {**defaults, **given}, file) if "derived" in content else {}
    )
    defaults = {**derived.pop("settings", {}), **defaults}
    settings = {**defaults, **given}
    resolved = {
        key: _resolved(part, settings, file, key) for key, part in content.items() if key != "settings"
    }
    try:
        return App.model_validate({"settings": defaults, **_merged(derived, resolved)})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise CannotStart(f"{file}: {place}: {_problem(first['type'], first['msg'])}") from error


def _parse(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise CannotStart(
            f"{file} is not there: it says what to make for the app; write it, or name the app's folder with --app"
        ) from error
    except OSError as error:
        raise CannotStart(
            f"{file}: cannot be read ({error.strerror}); name the app's folder with --app"
        ) from error
    except UnicodeDecodeError as error:
        raise CannotStart(f"{file}: not UTF-8 at byte {error.start}; save it as UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise CannotStart(f"{file}: not TOML: {error}") from error


def _derive(table: Any, folder: Path, settings: Mapping[str, str], file: Path) -> dict[str, Any]:
    """What the app's own declaration says. The app's folder is the last of the path: it may have an ``http.py``."""
    try:
        derived = Derived.model_validate(table)
        if str(folder) not in sys.path:
            sys.path.append(str(folder))
        found = importlib.import_module(derived.by).derive(derived.source, settings)
    except Exception as error:
        raise CannotStart(f"{file}: derived: {' '.join(str(error).split())}") from error
    return {
        key: each for key, each in found.items() if key in ("settings", "cosmos", "servicebus", "storage")
    }


def _merged(derived: Any, written: Any) -> Any:
    """What is derived, and what the file adds: tables of one name are one, in which the file wins."""
    if isinstance(derived, dict) and isinstance(written, dict):
        return {**derived, **{key: _merged(derived.get(key), each) for key, each in written.items()}}
    if (
        isinstance(derived, list)
        and isinstance(written, list)
        and all(isinstance(each, dict) for each in written)
    ):
        named = {(each.get("database"), each["name"]): each for each in derived}
        for each in written:
            key = each.get("database"), each.get("name")
            named[key] = _merged(named.get(key), each)
        return [*named.values()]
    return written


def _resolved(value: Any, settings: Mapping[str, Any], file: Path, place: str) -> Any:
    """``value`` with every ``%SETTING%`` replaced, and beside a name the setting that it comes from."""
    if isinstance(value, str):
        return _REFERENCE.sub(lambda found: _setting(found[1], settings, file, place), value)
    if isinstance(value, list):
        return [_resolved(each, settings, file, f"{place}.{number}") for number, each in enumerate(value)]
    if not isinstance(value, dict):
        return value
    if "setting" in value:
        raise CannotStart(f"{file}: {place}.setting: there is no such key; remove it")
    found = {
        key: _resolved(each, settings, file, f"{place}.{key}") for key, each in value.items() if key != "try"
    }
    found |= {key: each for key, each in value.items() if key == "try"}
    if isinstance(name := value.get("name"), str) and (reference := _REFERENCE.search(name)):
        found["setting"] = reference[1]
    return found


def _setting(name: str, settings: Mapping[str, Any], file: Path, place: str) -> str:
    value = settings.get(name)
    if isinstance(value, str):
        return value
    raise CannotStart(f"{file}: {place} uses %{name}%; set {name}, or give it a default under [settings]")


def _problem(kind: str, message: str) -> str:
    return "there is no such key; remove it" if kind == "extra_forbidden" else message
