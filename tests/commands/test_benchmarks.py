"""The benchmark measures over real sockets, says what it found beside what is wanted, and draws it."""

import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tools.benchmarks.__main__ import main
from tools.benchmarks.measured import Chart, Part, Row, Series
from tools.benchmarks.report import BEGIN, END, table, write

FAST = Row("quick things", "9/s", "10/s: bare", 0.9, 0.8)
SLOW = Row("slow things", "450 ms", "", 450, 400, " ms", at_most=True)
CHART = Chart(
    "picture", "Size & weight", "size", "weight", [Series("one", [(1, 2), (10, 30)])], logarithmic=True
)


def benchmark(part: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.benchmarks", "--only", part]
    return subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, env=environment)


@pytest.mark.long
def test_one_part_prints_its_row_and_writes_no_page() -> None:
    before = (ROOT / "docs" / "internals" / "performance.md").read_text()
    run = benchmark("page")
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(r"100 events of 100 contacts +1 +sends +1 send +<= 1 send$", run.stdout, re.MULTILINE)
    assert (ROOT / "docs" / "internals" / "performance.md").read_text() == before


def test_a_part_that_fails_leaves_the_others_rows_and_is_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fails(*_: object) -> Part:
        raise AssertionError("3 of 4 messages came")

    async def measures(*_: object) -> Part:
        return Part([FAST, SLOW], [])

    monkeypatch.setattr("tools.benchmarks.__main__.PARTS", {"fails": fails, "measures": measures})
    monkeypatch.setattr("tools.benchmarks.__main__.Stack", nullcontext)
    monkeypatch.setattr("sys.argv", ["bench", "--only", "fails", "--only", "measures"])
    monkeypatch.setattr("logging.disable", lambda _: None)
    assert main() == 1
    _, listed = capsys.readouterr().out.split("Not as wanted:\n")
    assert listed.splitlines() == [
        "slow things: 450 ms, wanted <= 400 ms",
        "fails was not measured: 3 of 4 messages came",
    ]


def test_what_is_not_as_wanted_is_marked() -> None:
    _, fast, slow = table([FAST, SLOW]).splitlines()
    assert fast.split() == ["quick", "things", "9/s", "10/s:", "bare", "0.90", ">=", "0.8"]
    assert slow.split() == ["slow", "things", "450", "ms", "450", "ms", "<=", "400", "ms", "MISSED"]


def test_the_page_keeps_what_people_have_written(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold figures\n{END}\nafter\n")
    for _ in range(2):
        write([FAST, SLOW], [CHART], page, tmp_path / "pictures")
    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}\n")
    assert text.endswith(f"{END}\nafter\n")
    assert "old figures" not in text
    assert text.count("[All figures](pictures/figures.txt), measured on devstack: ") == 1
    assert (tmp_path / "pictures" / "figures.txt").read_text() == f"{table([FAST, SLOW])}\n"
    assert "![Size & weight](pictures/picture.svg)" in text
