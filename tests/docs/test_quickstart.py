"""The ten lines that README shows are a function app with all that its promises rest on."""

import re
import sys
from types import ModuleType
from typing import Any

import pytest

from domain.contact import Contact
from tests.support.paths import ROOT


def test_the_ten_lines_are_a_whole_function_app(monkeypatch: pytest.MonkeyPatch) -> None:
    [lines] = re.findall(r"## Ten lines\n\n```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    code = [line for line in lines.splitlines() if line and not line.startswith("#")]
    assert len(code) <= 10
    booking = ModuleType("bookings.booking")
    booking.__dict__["Booking"] = Contact  # any aggregate
    monkeypatch.setitem(sys.modules, "bookings", ModuleType("bookings"))
    monkeypatch.setitem(sys.modules, "bookings.booking", booking)
    named: dict[str, Any] = {}
    exec(lines, named)

    functions = {each.get_function_name(): each for each in named["app"].get_functions()}
    assert {"relay", "watch_relay", "tend_parked", "health", "unrouted"} <= set(functions)
    assert functions["relay"].get_settings_dict("retry_policy")["max_retry_count"] == "-1"
