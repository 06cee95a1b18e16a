"""Write the JSON Schemas of a service's events and their AsyncAPI document to a folder.

cosmos-outbox schemas FOLDER
"""

import json
import os
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cosmos_outbox.cli import command
from cosmos_outbox.contracts.schemas import asyncapi, events_of, file_name, schema
from cosmos_outbox.service import Service


def contract(service: Service, examples: Mapping[str, Any] | None = None) -> dict[str, str]:
    """The files of a service's contract, by their paths in its folder."""
    documents = {f"schemas/{file_name(kind)}": schema(kind, of) for kind, of in events_of(service).items()}
    documents["asyncapi.json"] = asyncapi(service, examples)
    return {
        name: json.dumps(document, indent=2, ensure_ascii=False) + "\n"
        for name, document in documents.items()
    }


def write(folder: Path, files: Mapping[str, str]) -> None:
    """Write each file that differs. Schemas of other versions stay: messages of them may still wait."""
    for name, text in files.items():
        file = folder / name
        if not file.exists() or file.read_text("utf-8") != text:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")
            command.say(f"wrote {file}")


def main(argv: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """Write the folder, and return the exit code."""
    parser = command.parser(
        "schemas",
        "Write the JSON Schemas of the service's events and their AsyncAPI document to a folder.",
        "written",
        "not all is written",
        "the service cannot be loaded",
    )
    parser.add_argument("folder", type=Path, help="such as contracts; commit it")
    return command.ended(parser, _write(parser.parse_args(argv), environment))


async def _write(arguments: Namespace, environment: Mapping[str, str]) -> int:
    service, _ = command.named(arguments, environment, publishes=True)
    write(arguments.folder, contract(service))
    return command.DONE
