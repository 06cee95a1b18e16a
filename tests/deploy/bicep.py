"""Finds declarations in Bicep files; the compiler, which runs in CI, checks the files themselves.

The functions rely on the form of our files: the first and the last line of a declaration start in the first column, and
each property has a line of its own.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from tests.support.paths import ROOT

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


def read(name: str) -> Bicep:
    """A file of ``deploy/``."""
    return Bicep(_COMMENT.sub("", (ROOT / "deploy" / name).read_text()))


MAIN = read("main.bicep")
DECLARED = json.loads((ROOT / "deploy" / "service.json").read_text())
"""What ``cosmos-outbox resources`` has written, which main.bicep loads under this name."""


def settings(transport: str = "servicebus", *, host: bool = True) -> dict[str, str]:
    """What a function app finds in its environment, as expressions; without ``host`` what a container finds."""
    chosen = {"servicebus": "serviceBusSettings", "storagequeue": "storageQueueSettings"}[transport]
    of_transport = MAIN.declaration("var", chosen).properties()
    of_host = MAIN.declaration("var", "hostSettings").properties() if host else {}
    other = {"servicebus": "STORAGEQUEUE", "storagequeue": "SERVICEBUS"}[transport]
    who = MAIN.declaration("var", "identitySettings").properties()
    known = {name: value for name, value in who.items() if not name.startswith(f"{other}__")}
    own = DECLARED["settings"] | MAIN.declaration("var", "appSettings").properties()
    return dict(own | of_transport | known | of_host)


def evaluated(expressions: Mapping[str, str], **parameters: str) -> dict[str, str]:
    """The values of settings with the defaults of the parameters, or these; what only Azure knows is made up."""
    given = MAIN.defaults() | parameters
    found = {}
    for name, expression in expressions.items():
        if expression == "topicName":
            found[name] = given["serviceBusTopic"] or DECLARED["settings"]["SERVICEBUS_TOPIC"]
        elif expression in given:
            found[name] = given[expression]
        elif number := re.fullmatch(r"string\((\w+)\)", expression):
            found[name] = given[number[1]]
        elif expression.startswith("join("):
            found[name] = ",".join(DECLARED["subscriptions"])
        else:
            made_up = "." in expression or expression == "clientId"
            found[name] = f"made-up-{name}" if made_up else expression
    return found
