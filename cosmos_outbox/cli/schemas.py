"""The contract of a service's events goes to a folder, which moves on only by what breaks no reader.

    cosmos-outbox schemas [--check] FOLDER [--service MODULE]

Exit code 0: written, or nothing breaks a reader; 1: something does, and nothing is written; 2: nobody could tell.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from cosmos_outbox.cli import told
from cosmos_outbox.contracts.release import ASYNCAPI, SCHEMAS, compare, contract, write
from cosmos_outbox.settings.errors import Misconfigured

DONE, BREAKS, UNUSABLE = 0, 1, 2


def main(argv: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """Compare, write unless it is only a check, and return the exit code."""
    arguments = _parser().parse_args(argv)
    folder: Path = arguments.folder
    try:
        files = contract(told.service(arguments, environment))
        found = compare(folder, files)
    except (Misconfigured, ValueError) as error:
        print(f"schemas: {error}", file=sys.stderr)
        return UNUSABLE
    if arguments.check and not [*folder.glob(f"{SCHEMAS}/*.json")]:
        return _missing(folder, "no contract")
    for line in found.raised:
        print(line)
    for line in found.breaks:
        print(line, file=sys.stderr)
    if found.breaks:
        print(
            "schemas: raise schema_version of such an event, or leave what was told. Of an event that nobody reads any "
            f"more, delete the files in {folder}",
            file=sys.stderr,
        )
        return BREAKS
    if arguments.check and not (folder / ASYNCAPI).exists():
        return _missing(folder, f"no {ASYNCAPI}")
    for name in [] if arguments.check else write(folder, files):
        print(f"wrote {folder / name}")
    return DONE


def _missing(folder: Path, what: str) -> int:
    print(
        f"schemas: {folder} has {what} to compare with: write it with cosmos-outbox schemas {folder}, and commit it",
        file=sys.stderr,
    )
    return UNUSABLE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cosmos-outbox schemas",
        description="Write the JSON Schemas of the service's events and their AsyncAPI document to a folder, unless "
        "that breaks whoever reads what is there.",
        epilog="Exit code 0: all right, 1: something breaks a reader, 2: it could not be found out.",
    )
    parser.add_argument(
        "folder", type=Path, help="such as contracts: the contract of the last release, committed"
    )
    parser.add_argument("--check", action="store_true", help="write nothing")
    told.add_argument(parser)
    return parser
