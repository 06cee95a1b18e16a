"""Checks Bicep files without a compiler: each resource against Azure's types, each name against its declaration, each
module's parameters and outputs against the module's file.

What the compiler does besides is not done here: it evaluates expressions, and knows every function's parameters. The
compiler runs in CI; this check runs in every ``make test``.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from tree_sitter import Node

from tests.deploy import bicep_syntax as syntax
from tests.deploy.bicep_kinds import Check, Expression, Types, declared_kind
from tests.deploy.bicep_syntax import Declaration, Source

BICEPS_OWN = {"parent", "scope", "dependsOn"}
"""Properties of a resource that are the language's."""
BY_THE_NAME = {"type", "apiVersion"}
"""Properties that the type's name gives."""
_FUNCTIONS = """
any array base64 base64ToJson base64ToString bool cidrHost cidrSubnet coalesce concat contains dataUri
dateTimeAdd dateTimeFromEpoch dateTimeToEpoch deployer deployment empty endsWith environment
extensionResourceId fail filter first flatten format groupBy guid indexOf int intersection items join json
last lastIndexOf length loadFileAsBase64 loadJsonContent loadTextContent loadYamlContent managementGroup map
mapValues max min newGuid objectKeys padLeft parseCidr pickZones range readEnvironmentVariable reduce
reference replace resourceGroup resourceId shallowMerge skip sort split startsWith string subscription
subscriptionResourceId substring take tenant tenantResourceId toLower toObject toUpper trim tryGet union
uniqueString uri uriComponent uriComponentToString utcNow
"""
"""https://learn.microsoft.com/azure/azure-resource-manager/bicep/bicep-functions"""


def faults(folder: Path, types: Types) -> list[str]:
    """What is wrong in the Bicep files of a folder: a line for each fault, with its file."""
    found = []
    for path in sorted(folder.rglob("*.bicep")):
        try:
            found += [f"{path.name}: {fault}" for fault in _of(Source.read(path), Check(types))]
        except syntax.Unreadable as error:
            found.append(str(error))
    return list(dict.fromkeys(found))


def _of(source: Source, check: Check) -> Iterator[str]:
    yield from _names(source)
    for each in source.of("resource").values():
        yield from _resource(each, source, check)
    for each in source.of("module").values():
        yield from _module(each, source, check)


def _names(source: Source) -> Iterator[str]:
    """Each name is declared once, and each parameter and variable is used."""
    used: set[str] = set()
    seen: set[tuple[bool, str]] = set()
    for each in source.declarations:
        key = (each.kind == "output", each.name)
        if key in seen:
            yield f"{each.name} is declared twice"
        seen.add(key)
        if each.value is not None:
            used |= set(syntax.names(each.value))
            yield from _read(each.name, each.value, source)
    for each in source.declarations:
        if each.kind in {"parameter", "variable"} and each.name not in used:
            yield f"{each.name} is declared and not used"
    for module, output in re.findall(r"\b(\w+)!?\.outputs\.(\w+)", source.code):
        declared = source.of("module").get(module)
        file = source.path.parent / declared.reference if declared else None
        if file and file.exists() and output not in Source.read(file).of("output"):
            yield f"{module} has no output {output}"


def _read(where: str, value: Node, source: Source) -> Iterator[str]:
    """What an expression reads is there."""
    for name in dict.fromkeys(syntax.names(value)):
        if source.named(name) is None:
            yield f"{where}: {name} is not declared"
    for called in syntax.functions(value):
        if called not in _FUNCTIONS.split():
            yield f"{where}: there is no function {called}"
    if any(inner.type == "resource_declaration" for inner in syntax.descendants(value)):
        yield f"{where}: a resource inside of another is not checked: give it a parent"


def _resource(declared: Declaration, source: Source, check: Check) -> Iterator[str]:
    wanted = check.types.resources.get(declared.reference)
    if wanted is None:
        yield f"{declared.name}: the tests do not have the type {declared.reference}: run tools.bicep_types"
    elif not declared.existing:
        assert declared.value is not None
        body = Expression(declared.body, source).at(declared.body, *syntax.loops(declared.value))
        for fault in check.faults(wanted, body, declared.name):
            if not _biceps_business(fault, declared.name):
                yield fault


def _biceps_business(fault: str, resource: str) -> bool:
    own = {f"{resource}: no property {name}" for name in BICEPS_OWN}
    return fault in own | {f"{resource}: {name} is missing" for name in BY_THE_NAME}


def _module(declared: Declaration, source: Source, check: Check) -> Iterator[str]:
    file = source.path.parent / declared.reference
    if not file.exists():
        yield f"{declared.name}: there is no {declared.reference}"
        return
    wanted = Source.read(file).of("parameter")
    body = dict(syntax.properties(declared.body))
    given = dict(syntax.properties(body["params"])) if "params" in body else {}
    for name, value in given.items():
        if name not in wanted:
            yield f"{declared.name}: {file.name} has no parameter {name}"
            continue
        kind, allowed = declared_kind(wanted[name].type), wanted[name].allowed()
        place = Expression(value, source).at(value, *syntax.loops(declared.value or value))
        for each in place.alternatives():
            if "any" not in {kind, each.kind()} and each.kind() not in {kind, "null"}:
                yield f"{declared.name}.{name}: {each.written()} is {each.kind()}, and {kind} is wanted"
            wrong = [text for text in each.texts() if allowed and text not in allowed]
            yield from (f"{declared.name}.{name}: {text} is none of {', '.join(allowed)}" for text in wrong)
    for name, parameter in wanted.items():
        if name not in given and not parameter.optional:
            yield f"{declared.name}: parameter {name} of {file.name} is missing"
