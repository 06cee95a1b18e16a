"""The rules that need no service: the properties that an indexing policy covers, and the command line."""

import json
import os
from datetime import timedelta
from pathlib import Path

import pytest

from cosmos_outbox.cli.preflight import main
from cosmos_outbox.cosmos.maintenance.inspection import IndexingPolicy
from cosmos_outbox.preflight import cosmos as rules
from cosmos_outbox.preflight.cosmos import covers
from cosmos_outbox.preflight.report import Subject, exit_code, written
from tests.support.command import run_command
from tests.support.functions import functions
from tests.support.paths import ROOT


@pytest.mark.parametrize(
    ("included", "excluded", "covered"),
    [
        (["/*"], [], True),
        (["/*"], ['/"_etag"/?'], True),
        (["/data/deleted/?"], ["/*"], True),
        (['/"data"/"deleted"/?'], ["/*"], True),
        (["/data/*"], ["/*"], True),
        (["/data/?"], ["/*"], False),
        (["/data/deleted/*"], ["/*"], True),
        (["/data/name/?"], ["/*"], False),
        (["/dat/*"], ["/*"], False),
        ([], ["/*"], False),
        (["/*"], ["/data/*"], False),
        (["/*"], ["/data/deleted/?"], False),
        (["/data/deleted/?"], ["/data/*"], True),
        (["/data/*"], ["/data/deleted/?"], False),
        (["/data/deleted/?"], ["/data/deleted/*"], True),
    ],
)
def test_the_more_precise_path_decides(included: list[str], excluded: list[str], covered: bool) -> None:
    policy = IndexingPolicy(enabled=True, included=tuple(included), excluded=tuple(excluded))
    assert covers(policy, "/data/deleted") is covered


def test_without_an_index_nothing_is_covered() -> None:
    assert not covers(IndexingPolicy(enabled=False, included=("/*",), excluded=()), "/type")


@pytest.mark.parametrize(
    ("level", "status"),
    [
        ("Session", "ok"),
        ("BoundedStaleness", "ok"),
        ("Strong", "ok"),
        ("ConsistentPrefix", "wrong"),
        ("Eventual", "wrong"),
        ("A New One", "wrong"),
        (None, "unknown"),
    ],
)
def test_a_consistency_without_session_tokens_is_reported(level: str | None, status: str) -> None:
    """The emulators have Session consistency alone."""
    finding = rules.consistency(level)
    assert str(finding).split()[:2] == [status, "account:"]
    assert ("Fix: " in str(finding)) is (status != "ok")


def test_the_exit_code_separates_wrong_from_unknown_and_allows_warnings() -> None:
    of = Subject("a")
    good, hint = of.ok("b"), of.warning("b", "c")
    bad, dark = of.wrong("b", "c"), of.unknown("b", "c")
    assert exit_code([]) == 0
    assert exit_code([good, hint]) == 0
    assert exit_code([good, bad, dark]) == 1
    assert exit_code([dark, good]) == 2


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (90, "90 s"), (300, "5 min"), (5400, "90 min"), (86_400, "1 d")]
)
def test_durations_are_written_in_the_largest_whole_unit(seconds: int, text: str) -> None:
    assert written(timedelta(seconds=seconds)) == text


def test_the_triggers_read_no_names_from_settings_by_themselves() -> None:
    """The host would take ``%NAME%`` from a setting; the library reads the names, and preflight reads the same ones."""
    declared = [trigger.get_dict_repr() for one in functions().values() if (trigger := one.get_trigger())]
    texts = {value for trigger in declared for value in trigger.values() if isinstance(value, str)}
    assert not [text for text in texts if "%" in text]


@pytest.mark.parametrize("time", ["", "1", "0h", "1w", "-1h", "1.5h", "1h30m", "99999999d"])
def test_a_text_that_is_no_time_is_refused(time: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([f"--survive={time}"], {})
    assert ended.value.code == 2
    assert "is not a time: write it like 90s, 30m, 1h or 2d" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[]", "is not a settings file"),
        ("{", "is not a settings file"),
        ('{"Values": {"COSMOS_DATABASE": 1}}', "must be an object of strings"),
        ('{"IsEncrypted": true, "Values": {}}', "is encrypted"),
        (
            '\ufeff{/* "Values":\n 1 */ "Values": {"COSMOS": "//", // as the func tool takes it\n "A": 1}}',
            "an obj",
        ),
        ('{"Values": {}}', "neither COSMOS nor COSMOS__accountEndpoint is set"),
        ('{"Values": {"COSMOS": "c"}}', "neither SERVICEBUS nor SERVICEBUS__fullyQualifiedNamespace is set"),
        (
            '{"Values": {"COSMOS": "c", "SERVICEBUS": "s", "EVENT_TTL_SECONDS": "x"}}',
            "EVENT_TTL_SECONDS is 'x'",
        ),
        (
            '{"Values": {"COSMOS": "c", "SERVICEBUS": "s", "SERVICEBUS_ADMIN_PORT": "0"}}',
            "SERVICEBUS_ADMIN_PORT",
        ),
    ],
)
def test_settings_that_cannot_be_used_are_named_in_one_line(
    content: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "settings.json"
    file.write_text(content, "utf-8")
    assert main(["--settings", str(file)], {}) == 2
    output = capsys.readouterr()
    assert (output.out, output.err.count("\n")) == ("", 1)
    assert output.err.startswith("preflight: ")
    assert said in output.err


def test_a_file_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--settings", str(tmp_path / "none.json")], {}) == 2
    assert (
        capsys.readouterr().err
        == f"preflight: cannot read {tmp_path / 'none.json'}: No such file or directory\n"
    )


def test_the_command_reads_a_settings_file_and_the_environment_beats_it(tmp_path: Path) -> None:
    file = tmp_path / "local.settings.json"
    sample = json.loads((ROOT / "local.settings.sample.json").read_text())
    sample["Values"]["COSMOS"] = "AccountEndpoint=http://127.0.0.1:1/;AccountKey=a2V5;"
    file.write_text(json.dumps(sample))
    ended = run_command(
        *("preflight", "--settings", str(file)),
        environment={**os.environ, "SERVICEBUS_ADMIN_PORT": "1", "EVENT_TTL_SECONDS": "300"},
    )
    lines = ended.out.splitlines()
    assert lines[0].startswith("wrong    EVENT_TTL_SECONDS: events are kept for 5 min")
    assert lines[1].startswith("unknown  Cosmos DB: cannot be reached")
    assert lines[2].startswith("unknown  Service Bus: cannot be reached")
    assert lines[3:] == ["1 wrong, 2 unknown"]
    assert (ended.code, ended.err) == (1, "")
