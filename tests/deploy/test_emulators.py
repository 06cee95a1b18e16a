"""The tests also run against Microsoft's emulators: a known gap is expected there, and documented."""

import pytest

from tests.support import emulators
from tests.support.paths import ROOT

pytest_plugins = ["pytester"]

CONFTEST = """
from tests.support import emulators

pytest_configure = emulators.register

def pytest_collection_modifyitems(items):
    emulators.expect_failures(items)
"""
TESTS = """
import pytest
from tests.support.emulators import Gap

@pytest.mark.known_gap(Gap.BATCH_LIMITS)
def test_gap():
    assert False

@pytest.mark.known_gap(Gap.BATCH_LIMITS)
def test_mended():
    pass

def test_no_gap():
    assert False
"""


@pytest.mark.parametrize(
    ("cosmos", "outcomes"),
    [
        ("http://127.0.0.1:1/", {"failed": 1, "xfailed": 1, "xpassed": 1}),
        ("", {"failed": 2, "passed": 1}),
    ],
)
def test_a_known_gap_may_fail_on_an_emulator_and_nowhere_else(
    cosmos: str, outcomes: dict[str, int], pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_COSMOS", cosmos)
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function")
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(TESTS)
    pytester.runpytest_inprocess("--strict-markers", "-p", "no:cacheprovider").assert_outcomes(**outcomes)


def test_every_gap_of_the_emulators_is_documented() -> None:
    document = (ROOT / "docs" / "internals" / "emulators.md").read_text()
    for gap in emulators.Gap:
        assert f"({gap})" in document, gap.name


def test_a_server_that_runs_elsewhere_is_neither_started_nor_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_SERVICEBUS", raising=False)
    assert emulators.elsewhere("servicebus") is None
    monkeypatch.setenv("TEST_SERVICEBUS", "amqp://127.0.0.1:5672 http://127.0.0.1:5300")
    server = emulators.elsewhere("servicebus")
    assert server is not None
    assert server.start().addresses == ["amqp://127.0.0.1:5672", "http://127.0.0.1:5300"]
    assert server.terminate() == 0
    with pytest.raises(AssertionError, match="own_stack"):
        server.kill()
