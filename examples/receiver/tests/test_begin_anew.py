"""After a restore of its source each aggregate is as the source shows it, and what comes next is applied in order."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from examples.receiver import begin_anew
from examples.receiver.inbox import CloudEvent, Current, Inbox, Taken


class Source:
    """What the service shows by now; of ``away`` it shows nothing, and nobody knows."""

    def __init__(self, **shown: Current) -> None:
        self.shown, self.away = shown, set[str]()
        self.fails: Exception = httpx.ConnectError("refused")

    def __call__(self, _kind: str, name: str) -> Current | None:
        if name in self.away:
            raise self.fails
        return self.shown.get(name)


def event(sequence: int, name: str, *, life: int = 1, **data: Any) -> CloudEvent:
    return CloudEvent(f"{name}-{sequence}-{life}", f"E{sequence}", ("contact", name), sequence, data)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "receiver.db"


def received(file: Path, source: Source) -> Inbox:
    """It has got five events of ``a`` and three of ``b``."""
    inbox = Inbox(file, source)
    for each in [*(event(n, "a", text=f"t{n}") for n in range(1, 6)), *(event(n, "b") for n in (1, 2, 3))]:
        assert inbox.take(each) is Taken.APPLIED
    return inbox


def test_sequences_that_come_again_are_other_events(file: Path) -> None:
    inbox = received(file, Source(a=Current(3, {"text": "t3"})))
    assert inbox.take(event(4, "a", life=2, text="other")) is Taken.KNOWN, "which is why it has to begin anew"
    assert {name: inbox.read_anew(kind, name) for kind, name in inbox.known()} == {"a": True, "b": False}
    assert (inbox.state("contact", "a"), inbox.state("contact", "b")) == ({"text": "t3", "events": []}, None)
    assert inbox.take(event(3, "a", text="t3")) is Taken.KNOWN, "the relay sends again what is stored"
    assert inbox.take(event(5, "a", life=2)) is Taken.TOO_EARLY
    assert inbox.take(event(4, "a", life=2, text="other")) is Taken.APPLIED
    assert inbox.take(event(1, "b", life=2, text="new")) is Taken.APPLIED
    assert inbox.state("contact", "a") == {"text": "other", "events": ["E4"]}


def test_what_was_gone_and_is_there_again_goes_on(file: Path) -> None:
    source = Source()
    inbox = received(file, source)
    assert inbox.take(CloudEvent("notice", "EventDiscarded", ("contact", "a"), 6, {})) is Taken.APPLIED
    assert inbox.take(event(7, "a")) is Taken.KNOWN
    source.shown["a"] = Current(2, {"text": "t2"})
    assert inbox.read_anew("contact", "a")
    assert inbox.take(event(3, "a", life=2, text="new")) is Taken.APPLIED


def test_it_is_run_again_when_the_source_did_not_answer_for_all(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = Source(a=Current(3, {"text": "t3"}), b=Current(1, {}))
    received(file, source)
    monkeypatch.setenv("RECEIVER_DATABASE", str(file))
    monkeypatch.setattr(begin_anew, "source", lambda: source)
    source.away = {"b"}
    with pytest.raises(SystemExit, match=r"the source does not answer: .*refused.*Run this again"):
        begin_anew.main()
    source.fails = KeyError("sequence")
    with pytest.raises(SystemExit, match=r"SOURCE shows no aggregate with its sequence .*: set it"):
        begin_anew.main()
    source.away.clear()
    monkeypatch.setattr(begin_anew, "_PRINT_EACH", 1)
    begin_anew.main()
    assert capsys.readouterr().out.endswith("1 of 2\n2 of 2\n2 are as the source shows them, 0 are gone\n")
    with closing(sqlite3.connect(file)) as database:
        assert database.execute("SELECT id, sequence FROM entry ORDER BY id").fetchall() == [
            ("a", 3), ("b", 1)
        ]  # fmt: skip


def test_what_is_not_set_is_one_line(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECEIVER_DATABASE", str(file))
    monkeypatch.delenv("SOURCE", raising=False)
    with pytest.raises(SystemExit, match="is not there: set RECEIVER_DATABASE"):
        begin_anew.main()
    received(file, Source())
    with pytest.raises(SystemExit, match="SOURCE is not set"):
        begin_anew.main()
