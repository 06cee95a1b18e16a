"""A stop in the middle of sending loses nothing, and no process remains."""

from pathlib import Path
from typing import Any

import aiohttp
import pytest

from devstack.testing import eventually
from tests.e2e.conftest import stack
from tests.e2e.test_path import search

pytestmark = pytest.mark.own_stack


# What is left open is logged in any case; that a new Python with all its warnings has none takes three seconds more.
EVERY_WARNING = {"PYTHONWARNINGS": "always", "PYTHONASYNCIODEBUG": "1"}


@pytest.mark.parametrize("python", [{}, pytest.param(EVERY_WARNING, marks=pytest.mark.long)], ids=["", "all"])
async def test_a_quiet_stop_closes_every_client(
    tmp_path: Path, http: aiohttp.ClientSession, python: dict[str, Any]
) -> None:
    with stack(tmp_path, **python) as started:
        contact = await started.create(http, name={"firstName": "Be", "lastName": "Quiet"})
        assert await started.sequences(contact["id"], 1) == [1]
        # Quiet is the app when nothing is under way: the relay has its answer, and the directory the event.
        await eventually(lambda: "forwarded 1 event(s)" in started.log())
        await eventually(lambda: search(started, http, name="quiet"))
        before = len(started.log())
        assert started.functions.terminate() == 0
        log = started.log()
    for complaint in ("Unclosed", "never awaited", "was destroyed but it is pending", "unclosed"):
        assert complaint not in log, log[-3000:]
    # Not before: a round that a busy machine made too slow is logged with one, and tried again.
    assert "Traceback" not in log[before:], log[before:]
