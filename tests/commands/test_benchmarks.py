"""The benchmark measures over real sockets, says what it found beside what is wanted, and draws it."""

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from devstack.testing import Service
from tests.support.paths import ROOT
from tools.benchmarks import reading
from tools.benchmarks.bed import Bed
from tools.benchmarks.chart import draw
from tools.benchmarks.measured import Chart, Row, Series
from tools.benchmarks.reading import PROGRAM
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


@pytest.mark.long
@pytest.mark.parametrize("given", [{}, {PROGRAM: ""}, {PROGRAM: "/no/such/program"}])
def test_without_the_dotnet_program_its_part_says_what_is_missing(given: dict[str, str]) -> None:
    run = benchmark("feed", {name: value for name, value in os.environ.items() if name != PROGRAM} | given)
    assert run.returncode == 1
    assert re.search(r"feed: not measured: DOTNET_READER .*docs/internals/performance\.md", run.stdout)
    assert "dotnet build" in (ROOT / "docs" / "internals" / "performance.md").read_text()


@pytest.mark.long
async def test_both_readers_are_asked_for_so_many_readings(
    cosmos_server: Service, servicebus_server: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours in the place of the .NET one too: what is tested here is the comparison."""
    monkeypatch.setattr(reading, "CHANGES", 500)
    monkeypatch.setattr(reading, "PAGES", {100: 0.0})
    monkeypatch.setattr(reading, "_PROCESSES", 1)
    other = tmp_path / "reader"
    other.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tools.benchmarks.reader "$@"\n')
    other.chmod(0o755)
    monkeypatch.setenv(PROGRAM, str(other))

    found = await reading.readings(lambda: Bed(cosmos_server, servicebus_server, tmp_path), print)

    first, warm = found.rows
    assert first.name == "reading 500 changes, pages of 100"
    assert first.wanted == 0
    assert warm.wanted == 1
    for row in found.rows:
        ours, theirs = (float(side.partition("/s")[0]) for side in (row.ours, row.bare))
        assert row.figure == pytest.approx(ours / theirs)


@pytest.mark.long  # whoever measures sees it
async def test_a_reader_that_fails_ends_the_benchmark(
    cosmos_server: Service, servicebus_server: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PROGRAM, "/bin/false")
    monkeypatch.setattr(reading, "CHANGES", 100)
    with pytest.raises(SystemExit, match=r"/bin/false bench-.* ended with 1"):
        await reading.readings(lambda: Bed(cosmos_server, servicebus_server, tmp_path), print)


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
    assert text.count("| slow things | 450 ms |  | missed: **450 ms** | ≤ 400 ms |") == 1
    assert "![Size & weight](pictures/picture.svg)" in text


def test_a_chart_is_a_picture_with_its_points_in_place() -> None:
    picture = ET.fromstring(draw(CHART))
    space = "{http://www.w3.org/2000/svg}"
    [line] = picture.iter(f"{space}polyline")
    (x1, y1), (x2, y2) = (map(float, point.split(",")) for point in line.attrib["points"].split())
    _, _, width, height = map(float, picture.attrib["viewBox"].split())
    assert 0 < x1 < x2 < width
    assert 0 < y2 < y1 < height, "more is higher"
    texts = [text.text for text in picture.iter(f"{space}text")]
    assert {"Size & weight", "size", "weight", "one", "1", "10", "50"} <= set(texts)
