"""A folder holds the contract of the last release, and moves on only by what breaks no reader.

A schema that the service no longer makes stays in it: messages of that version may still wait.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cosmos_outbox.contracts import asyncapi
from cosmos_outbox.contracts.breaks import breaks
from cosmos_outbox.contracts.channels import channel_breaks
from cosmos_outbox.contracts.schemas import events_of, file_name, schema
from cosmos_outbox.wiring.service import Service

_NAME = re.compile(r"^(?P<event>.+)\.v(?P<version>[1-9]\d*)\.json$")
SCHEMAS = "schemas"
ASYNCAPI = "asyncapi.json"


def contract(service: Service, examples: Mapping[str, Any] | None = None) -> dict[str, str]:
    """The files of a service's contract, by their paths in its folder. Raises ValueError: two events have one name."""
    documents = {f"{SCHEMAS}/{file_name(kind)}": schema(kind, of) for kind, of in events_of(service).items()}
    documents[ASYNCAPI] = asyncapi.document(service, examples)
    return {
        name: json.dumps(document, indent=2, ensure_ascii=False) + "\n"
        for name, document in documents.items()
    }


@dataclass
class Comparison:
    """What is new since the last release, a line each."""

    breaks: list[str] = field(default_factory=list)
    """What a reader of the last release would stumble over."""
    raised: list[str] = field(default_factory=list)
    """Events with a new version, for which readers need a step."""


def compare(folder: Path, files: Mapping[str, str]) -> Comparison:
    """The contract in a folder, and one that is to follow it. Raises ValueError: a file in it cannot be read."""
    last = _schemas({f"{SCHEMAS}/{each.name}": each.read_text() for each in folder.glob(f"{SCHEMAS}/*.json")})
    found = Comparison()
    for (event, version), new in sorted(_schemas(files).items()):
        known = [each for name, each in last if name == event]
        newest = max(known, default=0)
        if newest and version not in (newest, newest + 1):
            found.breaks.append(
                f"{event}: its version is {version}, and was {newest}: the next is {newest + 1} (version)"
            )
        elif newest and version > newest:
            found.raised.append(
                f"{event}: version {version} is new; readers need a step from {newest} before it"
            )
        elif newest:
            found.breaks += [f"{event} v{version}: {each}" for each in breaks(last[event, version], new)]
    still = {event for event, _ in _schemas(files)}
    for event in sorted({event for event, _ in last} - still):
        found.breaks.append(f"{event} is gone (event)")
    if (told := folder / ASYNCAPI).exists():
        found.breaks += channel_breaks(
            *(_json(ASYNCAPI, text) for text in (told.read_text(), files[ASYNCAPI]))
        )
    return found


def write(folder: Path, files: Mapping[str, str]) -> list[str]:
    """Write every file that differs; returns their names."""
    written = []
    for name, text in files.items():
        file = folder / name
        if not file.exists() or file.read_text() != text:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            written.append(name)
    return written


def _schemas(files: Mapping[str, str]) -> dict[tuple[str, int], Any]:
    """By the event and its version. Raises ValueError: one is no JSON."""
    named = {name: _NAME.match(Path(name).name) for name in files if name.startswith(f"{SCHEMAS}/")}
    found = {}
    for name, match in named.items():
        if match is not None:
            found[match["event"], int(match["version"])] = _json(name, files[name])
    return found


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"{name} is no JSON: {error}") from None
