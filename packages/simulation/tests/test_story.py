"""Each rule that a seed may break is explained in a sentence."""

import ast

from outbox_simulation.invariants.rules import SENTENCES
from tests.support.paths import JUDGES


def test_each_rule_of_the_judges_has_a_sentence_and_each_sentence_a_rule() -> None:
    used: set[str] = set()
    for file in JUDGES.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Violation":
                used |= {each for each in (_constant(node.args[0]),) if each}
    assert used <= SENTENCES.keys()
    elsewhere = {
        "acknowledged, and not stored",
        "read model",
        "completed, and not applied",
        "first answer",
        "published again",
        "grows for ever",
        "expires in silence",
        "a list",
    }  # given by a name, or by the simulation
    assert SENTENCES.keys() - used == elsewhere


def _constant(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
