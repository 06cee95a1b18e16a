"""Writes a new service that runs and passes its own tests at once; nothing of an example is left to rename.

    cosmos-outbox init NAME [--kind functions|fastapi] [--aggregate Booking] [--into FOLDER]

Exit code 0: written; 1: the folder is not empty; 2: a name cannot be used.
"""

import argparse
import importlib.metadata
import json
import keyword
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pydantic.alias_generators import to_camel, to_snake

from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.settings.names import check_name

KINDS: Mapping[str, str] = {"functions": "python -m devstack", "fastapi": "python run.py"}
"""The kinds of host that a service may run on, each with the command that runs it."""
COMMON = "common"
TEMPLATES = Path(__file__).parent / "templates"
SUFFIX = ".template"

WRITTEN, NOT_EMPTY, UNUSABLE = 0, 1, 2

_AGGREGATE = re.compile(r"[A-Z][A-Za-z0-9]*")
_LONGEST = 40
_PLACE = re.compile(r"\{\{(\w+)\}\}")
_ENDINGS = (("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("shes", "sh"), ("s", ""))
_DISTRIBUTIONS = {
    "cosmos-outbox": ("cosmos-changefeed",),
    "outbox-simulation": ("devstack",),
    "cosmos-changefeed": (),
    "devstack": (),
}
"""Our own packages, each with those that it needs."""
_TAKEN = {
    *("service", "function_app", "tests", "app", "run", "fastapi", "uvicorn"),
    *("cosmos_outbox", "cosmos_changefeed", "devstack", "azure", "pydantic"),
}


class Unusable(ValueError):
    """A name cannot be used: the message says what can be."""


@dataclass(frozen=True)
class Words:
    """The names of the service and its aggregate, in each spelling that the templates use."""

    name: str
    """``room-bookings``"""
    aggregate: str
    """``RoomBooking``"""

    def __post_init__(self) -> None:
        """Raises Unusable."""
        try:
            check_name(self.name)
        except ValueError as error:
            raise Unusable(str(error)) from None
        if not _AGGREGATE.fullmatch(self.aggregate) or len(self.aggregate) > _LONGEST:
            raise Unusable(
                f"{self.aggregate!r} cannot name an aggregate: take one word with a capital, such as RoomBooking"
            )
        module = to_snake(self.aggregate)
        if module in _TAKEN or keyword.iskeyword(module) or module in sys.stdlib_module_names:
            raise Unusable(
                f"{self.aggregate} cannot name an aggregate here: {module}.py would hide another module. Choose "
                "another name with --aggregate"
            )

    @property
    def places(self) -> Mapping[str, str]:
        """The text that replaces each ``{{name}}`` of a template."""
        module = to_snake(self.aggregate)
        words = module.replace("_", " ")
        article = "an" if words[0] in "aeiou" else "a"
        return {
            "name": self.name,
            "Aggregate": self.aggregate,
            "module": module,
            "words": words,
            "a_type": f"{article} {words}",
            "A_type": f"{article.capitalize()} {words}",
            "type": to_camel(module),
            "plural": to_camel(self.name.replace("-", "_")),
            "topic": f"{module.replace('_', '-')}-events",
        }


def singular(name: str) -> str:
    """The aggregate of a service that is called after several of them: ``room-bookings``, RoomBooking."""
    one = name
    for ending, instead in _ENDINGS:
        if name.endswith(ending) and len(name) > len(ending) and not name.endswith("ss"):
            one = name.removesuffix(ending) + instead
            break
    return "".join(part[:1].upper() + part[1:] for part in one.split("-"))


def files(kind: str, words: Words) -> Iterator[tuple[Path, str]]:
    """Each file of a new service, with its text."""
    for home in (TEMPLATES / COMMON, TEMPLATES / kind):
        for template in sorted(home.rglob(f"*{SUFFIX}")):
            place = template.relative_to(home).as_posix().removesuffix(SUFFIX)
            yield Path(filled(place, words.places)), filled(template.read_text("utf-8"), words.places)


def as_installed(text: str) -> str:
    """A requirements file whose packages come from where this library itself was installed from: a folder, or wheels.

    What came from an index, or from git, stays as it is.
    """
    found = {name: _origin(name) for name in _DISTRIBUTIONS}
    lines = []
    for line in text.splitlines():
        name = re.split(r"[\[>=]", line)[0]
        lines += [f"{line.partition('>=')[0]} @ {found[name]}" if found.get(name) else line]
        lines += [f"{each} @ {found[each]}" for each in _DISTRIBUTIONS.get(name, ()) if found[each]]
    return "\n".join(lines) + "\n"


def _origin(name: str) -> str | None:
    """The URL that a package was installed from (PEP 610); None: from an index, from git, or not at all."""
    try:
        written = importlib.metadata.distribution(name).read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return None
    origin = json.loads(written) if written else {}
    return None if "vcs_info" in origin else origin.get("url")


def filled(text: str, places: Mapping[str, str]) -> str:
    """A text with each ``{{name}}`` replaced. Raises KeyError: there is no such place."""
    return _PLACE.sub(lambda found: places[found[1]], text)


def main(argv: Sequence[str] | None = None, _: object = None) -> int:
    """Write a service, and return the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        words = Words(arguments.name, arguments.aggregate or singular(arguments.name))
    except Unusable as error:
        print(f"init: {error}", file=sys.stderr)
        return UNUSABLE
    folder = arguments.into or Path(words.name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        print(
            f"init: {folder} is there, and is no empty folder: name another one with --into", file=sys.stderr
        )
        return NOT_EMPTY
    for place, text in files(arguments.kind, words):
        file = folder / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(as_installed(text) if file.name.startswith("requirements") else text, "utf-8")
    print(
        f"{folder}: the service {words.name}, with the aggregate {words.aggregate} in {words.places['module']}.py"
    )
    print(f"cd {folder} && {KINDS[arguments.kind]}   # runs it on a local Azure")
    print("python -m pytest   # its tests")
    return WRITTEN


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cosmos-outbox init",
        description="Write a new service that runs and passes its own tests at once.",
        epilog="Exit code 0: written, 1: the folder is not empty, 2: a name cannot be used.",
    )
    parser.add_argument("name", metavar="NAME", help="of the service, in small letters, such as bookings")
    parser.add_argument(
        "--kind", choices=list(KINDS), default="functions", help="what it runs on (default: %(default)s)"
    )
    parser.add_argument(
        "--aggregate", metavar="NAME", help="such as Booking (default: as the service, without s)"
    )
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="a new or empty folder (default: ./NAME)")
    return parser
