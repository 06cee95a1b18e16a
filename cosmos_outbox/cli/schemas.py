"""Write the JSON Schemas of a service's events and their AsyncAPI document to a folder.

    cosmos-outbox schemas FOLDER [--service MODULE]

Exit code 0: written; 2: the service cannot be loaded, or two of its events have one name.
"""

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cosmos_outbox.cli import command
from cosmos_outbox.contracts import asyncapi
from cosmos_outbox.contracts.schemas import events_of, file_name, schema
from cosmos_outbox.service import Service
from cosmos_outbox.settings.errors import Misconfigured

DONE, UNUSABLE = 0, 2


def contract(service: Service, examples: Mapping[str, Any] | None = None) -> dict[str, str]:
    """The files of a service's contract, by their paths in its folder."""
    documents = {f"schemas/{file_name(kind)}": schema(kind, of) for kind, of in events_of(service).items()}
    documents["asyncapi.json"] = asyncapi.document(service, examples)
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
    arguments = _parser().parse_args(argv)
    try:
        files = contract(command.service(arguments, environment))
    except (Misconfigured, ValueError) as error:
        command.say_error(f"schemas: {error}")
        return UNUSABLE
    write(arguments.folder, files)
    return DONE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cosmos-outbox schemas",
        description="Write the JSON Schemas of the service's events and their AsyncAPI document to a folder.",
    )
    parser.add_argument("folder", type=Path, help="such as contracts; commit it")
    command.add_argument(parser)
    return parser
