"""The mechanical rules of CONTRIBUTING.md hold in every module: one logger name, plain constants, names of errors."""

import ast
import builtins
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, TypeVar

import pytest

from tests.support.paths import ROOT

DEVSTACK = "packages/devstack"
PLACES = [
    "cosmos_outbox", "cosmos_changefeed", "domain", "application", "infra", "function_app.py", "examples", "tools",
    "tests", DEVSTACK, "packages/simulation",
]  # fmt: skip

ANSWERS = {"CosmosError", "AmqpError"}
"""devstack raises an answer of a wire protocol by its base: the status or condition in it says what happened."""

BASES = {"CannotStart"}
"""devstack's CannotStart is raised as it is; EndedEarly says beside that that the next start may succeed."""


N = TypeVar("N", bound=ast.AST)


@cache
def texts(place: str, kinds: tuple[str, ...] = (".py",)) -> list[tuple[str, str]]:
    path = ROOT / place
    found = [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.suffix in kinds)
    assert found, f"{place} is gone: correct PLACES in this test"
    return [(module.relative_to(ROOT).as_posix(), module.read_text()) for module in found]


@cache
def parsed(text: str) -> ast.Module:
    return ast.parse(text)


def modules(place: str, word: str) -> list[tuple[str, ast.Module]]:
    """Those in which such a word stands: without it there is nothing that the rule is about."""
    return [(name, parsed(text)) for name, text in texts(place) if re.search(word, text)]


@cache
def by_kind(module: ast.Module) -> dict[type[ast.AST], list[Any]]:
    found: dict[type[ast.AST], list[Any]] = defaultdict(list)
    for node in ast.walk(module):
        found[type(node)].append(node)
    return found


def nodes(module: ast.Module, kind: type[N]) -> list[N]:
    """All of one kind: a module is gone through once for all rules."""
    return by_kind(module).get(kind, [])


def loggers(place: str) -> Iterator[str]:
    """``_log = logging.getLogger(__name__)`` in the module; another call may only be about another package's level."""
    for name, module in modules(place, "getLogger"):
        calls = [
            node
            for node in nodes(module, ast.Call)
            if getattr(node.func, "attr", getattr(node.func, "id", "")) == "getLogger"
        ]
        allowed = [
            node.value
            for node in module.body
            if isinstance(node, ast.Assign) and ast.unparse(node) == "_log = logging.getLogger(__name__)"
        ] + [
            node.value
            for node in nodes(module, ast.Attribute)
            if node.attr in {"level", "setLevel", "handlers", "addHandler", "propagate"}
        ]
        for call in calls:
            if call not in allowed:
                yield f"{name}:{call.lineno}: write _log = logging.getLogger(__name__)"


def constants(place: str) -> Iterator[str]:
    """Capitals say that a name is a constant."""
    for name, module in modules(place, "Final"):
        for node in nodes(module, ast.alias):
            if node.name == "Final":
                yield f"{name}: write constants in capitals and without Final"


def errors(place: str) -> Iterator[str]:
    """The base of a tree ends in "Error" and is never raised; every other error is named for what happened."""
    classes = {
        node.name: (name, node)
        for name, module in modules(place, r"class \w+\(")  # what has no base is no error
        for node in nodes(module, ast.ClassDef)
    }

    @cache
    def bases(node: ast.ClassDef) -> set[str]:
        return {ast.unparse(base) for base in node.bases}

    def is_error(base: str) -> bool:
        builtin = getattr(builtins, base, None)
        if isinstance(builtin, type) and issubclass(builtin, BaseException):
            return True
        return base in classes and any(map(is_error, bases(classes[base][1])))

    def is_raised(kind: str) -> bool:
        return kind in {
            ast.unparse(node.exc.func if isinstance(node.exc, ast.Call) else node.exc)
            for _, module in modules(place, rf"raise {kind}\b")
            for node in nodes(module, ast.Raise)
            if node.exc is not None
        }

    for kind, (name, node) in classes.items():
        if not any(map(is_error, bases(node))):
            continue
        is_base = any(kind in bases(other) for _, other in classes.values())
        if kind.endswith("Error") and kind not in ANSWERS and (is_raised(kind) or not is_base):
            yield f"{name}:{node.lineno}: {kind} is raised, or is no base: name the error for what happened"
        if is_base and not kind.endswith("Error") and kind not in BASES and not bases(node) & set(classes):
            yield f"{name}:{node.lineno}: {kind} is the base of a tree: let the name end in Error"


OUR_OWN = ("cosmos_outbox", "cosmos_changefeed", "domain", "application", "infra", "function_app.py")
NO_PARTICIPLE = {"need", "feed", "embed", "proceed"}
"""Words that end in "ed" and are no participle."""


def coroutines(place: str) -> Iterator[str]:
    """What does something is named by a verb: a name in "ed" reads like a value that is there already."""
    if place not in OUR_OWN:
        return
    for name, module in modules(place, "async def "):
        for node in nodes(module, ast.AsyncFunctionDef):
            if node.decorator_list:
                continue  # a block, or a call that is known by its route
            first = node.name.lstrip("_").split("_")[0]
            if first.endswith("ed") and first not in NO_PARTICIPLE:
                yield f"{name}:{node.lineno}: {node.name} waits for something: name it by a verb"


def names_of_modules(place: str) -> Iterator[str]:
    """A module is named by a noun, not by a participle or an adverb: its name says what it holds."""
    for name, _ in texts(place) if place in OUR_OWN else []:
        last = name.removesuffix(".py").rpartition("/")[2].rpartition("_")[2]
        if (last.endswith("ed") and not last.endswith(tuple(NO_PARTICIPLE))) or last in {
            "away",
            "late",
            "beside",
            "once",
            "own",
        }:
            yield f"{name}: name the module by what it holds"


def homonyms(place: str) -> Iterator[str]:
    """One public name for one thing: a reader who has met it once knows what it is."""
    if place not in OUR_OWN:
        return
    found: dict[str, str] = {}
    for name, module in modules(place, "class "):
        for node in module.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                if node.name in found:
                    yield f"{name}:{node.lineno}: {found[node.name]} has a {node.name} too: rename one"
                found[node.name] = name


PLAIN = (*OUR_OWN, "examples", "tools", "tests", DEVSTACK, "packages/simulation")
DIALECT = re.compile(
    r"(?:(?<![A-Za-z])(?i:t(?:old|ells?|elling)|who(?:ever)|mean(?:while)|no(?:where))|T(?:old|ells?|elling))(?![a-z])"
)
PRONOUN = re.compile(r"\s*(?:Who(?:ever|se)?|What(?:ever)?|Where(?:ver)?)\b")


def words(place: str) -> Iterator[str]:
    """No word that means a dozen things; and a docstring begins with what the thing is or does, not with a pronoun."""
    if place not in PLAIN:
        return
    for name, text in texts(place, (".py", ".js", ".mjs", ".html", ".template", ".md")):
        for number, line in enumerate(text.splitlines() if DIALECT.search(text) else [], start=1):
            for found in DIALECT.findall(line):
                yield f'{name}:{number}: "{found}": say which: logged, returned, reported, described, known'
    if place != "cosmos_outbox":
        return
    for name, module in modules(place, f'"""{PRONOUN.pattern}'):
        for node in nodes(module, ast.Expr):
            match node.value:
                case ast.Constant(value=str(text)) if start := PRONOUN.match(text):
                    yield f'{name}:{node.lineno}: the docstring begins with "{start[0].strip()}": name the thing itself'


def names_of_tests(place: str) -> Iterator[str]:
    """A test's name is read in lists of failures and guarantees: it says the behaviour in a line."""
    for name, module in modules(place, r"def test_\w{66}"):
        found: list[ast.FunctionDef | ast.AsyncFunctionDef]
        found = [*nodes(module, ast.FunctionDef), *nodes(module, ast.AsyncFunctionDef)]
        for node in found:
            if node.name.startswith("test_") and len(node.name) > 70:
                yield f"{name}:{node.lineno}: {node.name} has {len(node.name)} characters: 70 at most"


CASES = [
    pytest.param(rule, place, id=f"{rule.__name__} in {place}")
    for rule in (loggers, constants, errors, coroutines, names_of_modules, homonyms, words, names_of_tests)
    for place in PLACES
]


@pytest.mark.parametrize(("rule", "place"), CASES)
def test_a_rule_holds(rule: Callable[[str], Iterator[str]], place: str) -> None:
    found = [*rule(place)]
    assert not found, "\n".join(found)
