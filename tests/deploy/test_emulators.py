"""The tests also run against Microsoft's emulators: a known gap is expected there, and documented."""

import pytest

from tests.support import emulators
from tests.support.paths import ROOT


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
