"""COMPATIBILITY.md promises nothing that no test shows."""

import re
from pathlib import Path

import devstack.cosmos

HERE = Path(__file__).parent
DOCUMENT = (Path(devstack.cosmos.__file__).parent / "COMPATIBILITY.md").read_text()


def test_every_test_that_the_document_names_is_there() -> None:
    named = re.findall(r"`(test_\w+\.py)::(\w+)`", DOCUMENT)
    sources = {path.name: path.read_text() for path in HERE.glob("test_*.py")}

    missing = [
        f"{file}::{test}"
        for file, test in named
        if not re.search(rf"(def {test}\(|^{test} =)", sources[file], re.MULTILINE)
    ]

    assert len(named) > 40
    assert missing == []


def test_every_row_that_says_yes_names_a_test() -> None:
    rows = [line.split("|") for line in DOCUMENT.splitlines() if line.startswith("| ") and "---" not in line]

    without = [row[1].strip() for row in rows if row[2].strip().startswith("yes") and "test_" not in row[3]]

    assert without == []
