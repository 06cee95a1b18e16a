"""Extracts Azure's types of exactly the resources that ``deploy/`` declares, small enough for the tests' folder.

    git clone --depth 1 https://github.com/Azure/bicep-types-az
    python -m tools.bicep_types bicep-types-az/generated

The published types (MIT licence) describe a resource's properties, their types and values. This command takes those
that the Bicep files name, without their descriptions, and writes them to ``tests/deploy/bicep_types.json``, which
``tests/deploy/bicep_check.py`` reads. Run it after a resource or an API version is new in a Bicep file.
"""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "tests" / "deploy" / "bicep_types.json"
SOURCE = "https://github.com/Azure/bicep-types-az"
LICENCE = "MIT, Copyright (c) Microsoft Corporation"

REQUIRED, READ_ONLY = 1, 2
_PLAIN = {
    "StringType": "string",
    "IntegerType": "int",
    "BooleanType": "bool",
    "AnyType": "any",
    "NullType": "null",
}
_LIMITS = ("minValue", "maxValue", "minLength", "maxLength", "pattern")


def declared(folder: Path) -> set[str]:
    """Returns the type and version of each resource in the Bicep files of ``folder``."""
    texts = (file.read_text() for file in sorted(folder.rglob("*.bicep")))
    return {name for text in texts for name in re.findall(r"^resource \w+ '([^']+)'", text, re.MULTILINE)}


class Extract:
    """Collects types: a plain one is its name, one that consists of others is a number among ``nodes``."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.resources: dict[str, Any] = {}

    def take(self, table: list[Any], wanted: set[str]) -> None:
        """Takes the wanted resources of a published file."""
        known: dict[int, Any] = {}
        for entry in table:
            if entry["$type"] == "ResourceType" and entry["name"] in wanted:
                self.resources[entry["name"]] = self._node(table, _at(entry["body"]), known)

    def _node(self, table: list[Any], at: int, known: dict[int, Any]) -> Any:
        """Returns the output for a type; ``known`` ends the circle of a type that contains itself."""
        if at not in known:
            entry = table[at]
            plain = _PLAIN.get(entry["$type"])
            limits = {name: entry[name] for name in _LIMITS if name in entry}
            if plain and not limits:
                known[at] = plain
            else:
                known[at] = number = len(self.nodes)
                self.nodes.append(None)
                found = {"plain": plain, **limits} if plain else self._written(table, entry, known)
                self.nodes[number] = found
        return known[at]

    def _written(self, table: list[Any], entry: dict[str, Any], known: dict[int, Any]) -> dict[str, Any]:
        """Returns the output for a type that consists of others."""

        def inner(reference: dict[str, str]) -> Any:
            return self._node(table, _at(reference), known)

        def properties(those: dict[str, Any]) -> dict[str, Any]:
            return {
                name: [each["flags"] & 3, "any" if each["flags"] & READ_ONLY else inner(each["type"])]
                for name, each in those.items()
            }

        match entry["$type"]:
            case "ObjectType":
                others = entry.get("additionalProperties")
                found = {"properties": properties(entry["properties"])}
                return found | ({"others": inner(others)} if others else {})
            case "DiscriminatedObjectType":
                each = {name: table[_at(one)]["properties"] for name, one in entry["elements"].items()}
                return {
                    "by": entry["discriminator"],
                    "properties": properties(entry["baseProperties"]),
                    "each": {name: properties(one) for name, one in each.items()},
                }
            case "ArrayType":
                return {"items": inner(entry["itemType"])}
            case "StringLiteralType":
                return {"values": [entry["value"]]}
            case "UnionType":
                elements = [table[_at(one)] for one in entry["elements"]]
                return {"values": [one["value"] for one in elements if one["$type"] == "StringLiteralType"]}
            case kind:
                raise ValueError(f"{kind} is a kind of type that this command does not know: teach it")


def _at(reference: dict[str, str]) -> int:
    return int(reference["$ref"].rpartition("/")[2])


def tables(folder: Path) -> Iterator[list[Any]]:
    """Yields the published files under ``folder``."""
    for file in sorted(folder.rglob("types.json")):
        yield json.loads(file.read_text())


def main(arguments: Sequence[str], data: Path = DATA) -> int:
    """Writes the types of all resources in ``deploy/``, or prints which the folder does not have."""
    if len(arguments) != 1:
        print(
            "usage: python -m tools.bicep_types FOLDER, the folder generated/ of a checkout of bicep-types-az"
        )
        return 2
    wanted, extract = declared(ROOT / "deploy"), Extract()
    for table in tables(Path(arguments[0])):
        extract.take(table, wanted)
    if missing := wanted - set(extract.resources):
        print(f"bicep_types: {arguments[0]} does not have {', '.join(sorted(missing))}", file=sys.stderr)
        return 1
    nodes = ",\n".join(json.dumps(node, separators=(",", ":")) for node in extract.nodes)
    head: dict[str, Any] = {
        "source": SOURCE,
        "licence": LICENCE,
        "taken": datetime.now(UTC).date().isoformat(),
    }
    head["resources"] = dict(sorted(extract.resources.items()))
    data.write_text(json.dumps(head, indent=1)[:-2] + f',\n "nodes": [\n{nodes}\n]\n}}\n')
    print(f"bicep_types: {len(extract.resources)} types, {data.stat().st_size // 1024} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
