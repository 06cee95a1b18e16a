"""A timer fires on its schedule, at the start when asked to, and ends with the host."""

from pathlib import Path

from tests.devstack.functions.support import host, recorded
from tests.support.eventually import eventually


async def test_a_timer_fires_at_the_start_and_then_every_second(tmp_path: Path) -> None:
    file = tmp_path / "record"
    with host(tmp_path / "host", "bus", {"BINDINGS": "timer", "RECORD": str(file)}) as service:
        await eventually(lambda: len(recorded(file)) >= 3)

    assert {(call["what"], call["past_due"]) for call in recorded(file)} == {("timer", False)}
    assert "Traceback" not in service.log.read_text()
