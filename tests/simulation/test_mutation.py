"""What a mutant is; that the simulation and a module's tests see one; that what is called harmless is still there."""

import ast
from collections.abc import Callable
from textwrap import dedent

import pytest

from tests.simulation.mutation.__main__ import chosen, harmless
from tests.simulation.mutation.collected import run_collected
from tests.simulation.mutation.covering import Covering
from tests.simulation.mutation.forks import Told, forked, warm
from tests.simulation.mutation.mutants import Mutant, mutants, mutated
from tests.simulation.mutation.reached import Reached
from tests.simulation.mutation.trial import CollectedTests, simulated
from tests.support.paths import ROOT

PAGE = "cosmos_outbox/outbox/page.py"


def _changes(source: str) -> list[str]:
    return [each.what for each in mutants("a.py", dedent(source))]


@pytest.mark.parametrize(
    ("line", "changes"),
    [
        ("x = a == b", ["a == b -> a != b"]),
        ("x = a < b", ["a < b -> a <= b"]),
        ("x = a and not b", ["a and (not b) -> a or not b", "not b -> b"]),
        ("x = a + 1", ["a + 1 -> a - 1", "1 -> 0"]),
        ("x = call(late=True)", ["True -> False"]),
        ("x = [each for each in a if each.new]", ["each.new -> not (each.new)"]),
        ("self.known[key] = 7", ["self.known[key] = 7 removed"]),
        ("await store.write()", ["await store.write() removed"]),
        ("del a[b]", ["del a[b] removed"]),
        ("raise Wrong(f'{1 + 1}')", ["raise Wrong(f'{1 + 1}') removed"]),
        ("_log.warning('%d', 1 + 1)", []),
        ("telemetry.parked(0)", []),
        ("if _log.isEnabledFor(10): tell(0)", []),
        ("assert a is not None", []),
        ("x = isinstance(a, str | ast.Name | list[Item] | None)", []),
        ("x = KEPT | LATER", ["KEPT | LATER -> KEPT & LATER"]),
        ("'words'", []),
    ],
)
def test_a_line_has_these_mutants(line: str, changes: list[str]) -> None:
    assert _changes(f"async def f():\n    {line}\n    return None\n") == changes


def test_a_condition_is_turned_round_and_an_early_return_is_removed() -> None:
    source = """
        def f(a):
            if a.done:
                return a
            return b(a)
        """
    assert _changes(source) == ["a.done -> not (a.done)", "return a removed", "return b(a) -> return None"]


def test_an_except_clause_is_removed_with_its_try_where_it_is_the_only_one() -> None:
    source = dedent("""
        def f():
            try:
                a()
            except Lost:
                b()
        """)
    found = mutants("a.py", source)
    assert [each.what for each in found] == ["except Lost removed", "a() removed", "b() removed"]
    assert ast.unparse(mutated(source, found[0].number)) == "def f():\n    a()"


def test_what_is_outside_of_functions_is_changed_before_it_is_imported() -> None:
    source = (
        "class A:\n    open: bool = False\n\n    def f(self, late=True):\n        return self.open == late\n"
    )
    told = [(each.where, each.what, each.warm) for each in mutants("a.py", source)]
    assert told == [
        ("A", "False -> True", False),
        ("A.f", "True -> False", False),
        ("A.f", "return self.open == late -> return None", True),
        ("A.f", "self.open == late -> self.open != late", True),
    ]


def _named(what: str) -> Mutant:
    [found] = [each for each in mutants(PAGE, (ROOT / PAGE).read_text()) if each.what == what]
    return found


@pytest.mark.long
def test_a_rule_sees_that_an_open_event_is_forgotten_and_a_test_sees_a_wrong_number() -> None:
    """In a fork, as all of it: this process keeps the code as it is."""
    lost, counted = _named("id(event) not in gone -> id(event) in gone"), _named("self.dropped += 1 removed")
    lines = {PAGE: {each.line: {6: 10} for each in (lost, counted)}}
    reach = Reached({6: 2.0}, {6: ""}, {6: 50.0}, lines)

    def work(tell: Callable[[Told], None]) -> None:
        def judge(session: pytest.Session) -> None:
            warm()
            tell(simulated(lost, reach, 1.0))
            tell(simulated(counted, reach, 1.0))
            ids = [item.nodeid for item in session.items]
            tests = CollectedTests(session, Covering(dict.fromkeys(ids, 0.1), {PAGE: {counted.line: ids}}))
            tell({"tests": tests.seen(counted)})

        run_collected(judge, ["tests/unit/test_refused_alike.py"])

    (seen, unseen, tests), code = forked(work)
    assert code == 0
    assert (seen["by"], seen["seed"]) == ("simulation", 6)
    assert unseen["by"] is None
    assert tests["tests"].startswith("tests/unit/test_refused_alike.py::")


def test_what_is_called_harmless_is_a_mutant_of_the_code_as_it_is() -> None:
    there = {
        (each.file, each.where, each.what)
        for file in {file for file, _, _ in harmless()}
        for each in mutants(file, (ROOT / file).read_text())
    }
    assert harmless().keys() <= there
    assert all(len(why) > 10 for why in harmless().values())


def test_a_sample_is_one_of_all_the_files_and_another_draw_is_another_choice() -> None:
    files = ["cosmos_outbox/outbox/parking.py", PAGE]
    everything, sample = chosen(files, None, 0), chosen(files, 20, 0)
    assert {each.file for each in everything} == set(files)
    assert len({(each.file, each.number) for each in sample}) == 20
    assert sample == chosen(files, 20, 0) != chosen(files, 20, 1)
    assert chosen(files, 10_000, 1) == everything
