"""A data file is opened safely or not at all: what cannot be ours is refused in one line and left as it is."""

import sqlite3
from pathlib import Path

import pytest

from devstack.service import CannotStart
from devstack.sqlite_file import Format, opened

FORM = Format(
    "shop",
    "shop.db",
    application_id=77,
    version=3,
    tables="CREATE TABLE orders (id TEXT);",
    known_by="orders",
)


def _make(folder: Path, script: str) -> bytes:
    file = folder / FORM.file_name
    connection = sqlite3.connect(file)
    connection.executescript(script)
    connection.close()
    return file.read_bytes()


def _refused(folder: Path, problem: str) -> None:
    before = (folder / FORM.file_name).read_bytes()
    with pytest.raises(CannotStart, match=problem) as refusal, opened(folder, FORM):
        pass
    assert "\n" not in str(refusal.value)
    assert str(folder / FORM.file_name) in str(refusal.value)
    assert (folder / FORM.file_name).read_bytes() == before


@pytest.mark.parametrize(("no_fsync", "synchronous"), [("", 1), ("1", 0)])
def test_a_new_file_is_marked_logged_and_there_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_fsync: str, synchronous: int
) -> None:
    monkeypatch.setenv("DEVSTACK_NO_FSYNC", no_fsync)
    with opened(tmp_path, FORM) as connection:
        connection.execute("INSERT INTO orders VALUES ('1')")
    with opened(tmp_path, FORM) as connection:
        assert connection.execute("SELECT id FROM orders").fetchall() == [("1",)]
        settings = [
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("application_id", "user_version", "journal_mode", "synchronous", "foreign_keys")
        ]
    assert settings == [77, 3, "wal", synchronous, 1]


def test_the_folder_belongs_to_one_process_while_the_file_is_open(tmp_path: Path) -> None:
    with (
        opened(tmp_path, FORM),
        pytest.raises(CannotStart, match="is in use by another process"),
        opened(tmp_path, FORM),
    ):
        pass
    with opened(tmp_path, FORM):
        pass


def test_an_older_unmarked_file_is_known_by_its_table_and_gets_marked(tmp_path: Path) -> None:
    _make(tmp_path, "CREATE TABLE orders (id TEXT); PRAGMA user_version=3;")
    with opened(tmp_path, FORM) as connection:
        assert connection.execute("PRAGMA application_id").fetchone()[0] == 77


@pytest.mark.parametrize(
    "script",
    [
        "CREATE TABLE mine (x);",
        "CREATE TABLE orders (id TEXT); PRAGMA application_id=78; PRAGMA user_version=3;",
        "CREATE TABLE orders (id TEXT); PRAGMA application_id=77; PRAGMA user_version=4;",
        "CREATE TABLE orders (id TEXT); PRAGMA user_version=2;",
    ],
)
def test_a_file_of_somebody_else_or_of_another_version_is_refused(tmp_path: Path, script: str) -> None:
    _make(tmp_path, script)
    _refused(tmp_path, "was not written by this version of devstack")


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / FORM.file_name
    file.write_bytes(b"this is no database" * 100)
    _refused(tmp_path, "is damaged or not a database")
    file.unlink()
    rows = " ".join(f"INSERT INTO orders VALUES ('{'x' * 500}{n}');" for n in range(100))
    whole = _make(tmp_path, f"{FORM.tables} PRAGMA application_id=77; PRAGMA user_version=3; {rows}")
    file.write_bytes(whole[: len(whole) // 2])
    _refused(tmp_path, "is damaged or not a database")


def test_a_file_that_was_being_made_when_the_process_was_killed_is_used(tmp_path: Path) -> None:
    (tmp_path / FORM.file_name).touch()
    with opened(tmp_path, FORM) as connection:
        assert connection.execute("SELECT count(*) FROM orders").fetchone() == (0,)
