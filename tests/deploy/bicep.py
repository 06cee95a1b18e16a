"""Finds declarations in Bicep files; the compiler, which runs in CI, checks the files themselves.

The functions rely on the form of our files: the first and the last line of a declaration start in the first column, and
each property has a line of its own.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.support.paths import ROOT

_MAP = re.compile(r"map\((\w+), (\w+) => ([^()]*)\)")
_CONCAT = re.compile(r"concat\(\[(.*?)\], \[(.*?)\]\)", re.DOTALL)
_COMMENT = re.compile(r"(^|\s)//.*$", re.MULTILINE)


@dataclass(frozen=True)
class Bicep:
    """The text of a file, or of one declaration in it."""

    text: str

    def names(self, kind: str) -> set[str]:
        """What is declared as ``param``, ``var``, ``output``, ``module`` or ``resource``."""
        return set(re.findall(rf"^{kind} (\w+)\b", self.text, re.MULTILINE))

    def defaults(self) -> dict[str, str]:
        """The parameters that have a default, which is an expression or a text without its quotes."""
        found = re.findall(r"^param (\w+) \w+ = (.+)$", self.text, re.MULTILINE)
        return {name: value.strip("'") for name, value in found}

    def allowed(self, parameter: str) -> list[str]:
        """The texts that a parameter may be."""
        [values] = re.findall(
            rf"^@allowed\(\[(.+)\]\)\n(?:@.*\n)*param {parameter} ", self.text, re.MULTILINE
        )
        return re.findall(r"'([^']+)'", values)

    def declaration(self, kind: str, name: str) -> "Bicep":
        """One of them, from its name to its end."""
        [found] = re.findall(rf"^{kind} {name}\b(.*?)$(?=\n\S|\Z)", self.text, re.MULTILINE | re.DOTALL)
        return Bicep(found)

    def words(self) -> list[str]:
        """All texts in it."""
        return re.findall(r"'([^']*)'", self.text)

    def properties(self) -> dict[str, str]:
        """What stands after each property in its line, without quotes; the last one of a name that is there twice."""
        found = re.findall(r"^ +(\w+): (.+)$", self.text, re.MULTILINE)
        return {name: value.strip("'") for name, value in found}

    def with_lists(self, lists: Mapping[str, Sequence[str]]) -> "Bicep":
        """Each ``map`` over one of these lists, and each ``concat``, written out."""

        def written(found: re.Match[str]) -> str:
            body = " ".join(found[3].split())
            lines = [body.replace(f"${{{found[2]}}}", value) for value in lists[found[1]]]
            return "\n".join(["[", *(f"          {line}" for line in lines), "        ]"])

        return Bicep(_CONCAT.sub(r"[\1 \2]", _MAP.sub(written, self.text)))

    def composite_indexes(self) -> tuple[tuple[str, ...], ...]:
        """The paths of each composite index; each index has a line of its own."""
        lines = self.text.partition("compositeIndexes: [")[2].partition("\n        ]")[0].splitlines()
        return tuple(tuple(re.findall(r"path: '([^']+)'", line)) for line in lines if "path" in line)

    def paths(self, kind: str) -> tuple[str, ...]:
        """Of an index: ``includedPaths`` or ``excludedPaths``."""
        return tuple(re.findall(r"path: '([^']+)'", self.text.partition(f"{kind}: [")[2].partition("]")[0]))


def read(name: str) -> Bicep:
    """A file of ``deploy/``."""
    return Bicep(_COMMENT.sub("", (ROOT / "deploy" / name).read_text()))


MAIN = read("main.bicep")


def settings(transport: str = "servicebus", *, host: bool = True) -> dict[str, str]:
    """What a function app finds in its environment, as expressions; without ``host`` what a container finds."""
    chosen = {"servicebus": "serviceBusSettings", "storagequeue": "storageQueueSettings"}[transport]
    of_transport = MAIN.declaration("var", chosen).properties()
    of_host = MAIN.declaration("var", "hostSettings").properties() if host else {}
    other = {"servicebus": "STORAGEQUEUE", "storagequeue": "SERVICEBUS"}[transport]
    who = MAIN.declaration("var", "identitySettings").properties()
    known = {name: value for name, value in who.items() if not name.startswith(f"{other}__")}
    return MAIN.declaration("var", "appSettings").properties() | of_transport | known | of_host


def evaluated(expressions: Mapping[str, str], **parameters: str) -> dict[str, str]:
    """The values of settings with the defaults of the parameters, or these; what only Azure knows is made up."""
    given = MAIN.defaults() | parameters
    found = {}
    for name, expression in expressions.items():
        if re.fullmatch(r"\w+Name", expression):
            [found[name]] = MAIN.declaration("var", expression).words()
        elif expression in given:
            found[name] = given[expression]
        elif number := re.fullmatch(r"string\((\w+)\)", expression):
            found[name] = given[number[1]]
        elif expression.startswith("join("):
            [found[name]] = MAIN.declaration("var", "subscriptionName").words()
        else:
            made_up = "." in expression or expression == "clientId"
            found[name] = f"made-up-{name}" if made_up else expression
    return found
