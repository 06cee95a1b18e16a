"""These bugs are rare where failures meet: one quick test sees each, and fails in a copy that has the bug."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT, python_path
from tests.torture.planted import copy_tracked, plant
from tests.torture.planted_bugs import Planted

_NO_PROFILE = "one test alone"
_PARKING, _LAST_TRIED = (
    "tests/unit/test_parking.py",
    "test_what_waits_is_found_by_its_aggregate_the_last_tried_last",
)

SEEN_BY = {
    Planted(
        "settle-counts-again-what-its-lost-answer-removed",  # then the aggregate is free while events wait
        "cosmos_outbox/cosmos/relay/parking_lot.py",
        "after = _freed_at_zero(_counted(change(marker), -len(ids)))",
        "after = _freed_at_zero(_counted(change(marker), -len(delivered)))",
        _NO_PROFILE,
        (),
    ): "tests/contract/test_parking_failures.py::test_what_a_lost_answer_has_removed_is_not_counted_again",
    Planted(
        "queue-one-of-two-queues-is-enough",
        "cosmos_outbox/storagequeue/publisher.py",
        "for each in outcomes if isinstance(each, kind)), Accepted()\n",
        "for each in outcomes if isinstance(each, kind) and Accepted() not in outcomes), Accepted()\n",
        _NO_PROFILE,
        (),
    ): "tests/contract/test_storage_queue_answers.py::test_an_event_is_accepted_only_when_each_queue_has_it",
    Planted(
        "memory-knows-an-event-by-its-id-alone",
        "cosmos_outbox/outbox/relay.py",
        "            if (event.aggregate, event.id) in self._known:\n",
        "            if event.id in {known for _, known in self._known}:\n",
        _NO_PROFILE,
        (),
    ): "tests/unit/test_relay.py::test_events_of_two_aggregates_with_one_id_are_two",
    Planted(
        "replay-sends-after-its-claim",
        "cosmos_outbox/outbox/replay.py",
        "return min(self.reading_seconds, max(self.seconds, answer + _READ_SECONDS), left)\n",
        "return min(self.reading_seconds, max(self.seconds, answer + _READ_SECONDS))\n",
        _NO_PROFILE,
        (),
    ): f"{_PARKING}::test_a_replay_sends_no_longer_than_its_claim_lasts",
    Planted(
        "deadline-correction-overwrites",
        "cosmos_outbox/cosmos/aggregates/deadlines.py",
        'write = Write.replace(plain | wanted, str(item["_etag"]))\n',
        "write = Write.upsert(plain | wanted)\n",
        _NO_PROFILE,
        (),
    ): "tests/contract/test_deadlines.py::test_a_correction_writes_over_no_change_that_was_made_before",
    Planted(
        "republish-reading-counts-from-its-end",
        "cosmos_outbox/outbox/republish.py",
        "        usable_until = monotonic() + self.reading_seconds\n"
        "        markers = await self.parking.markers(left.keys())\n",
        "        markers = await self.parking.markers(left.keys())\n"
        "        usable_until = monotonic() + self.reading_seconds\n",
        _NO_PROFILE,
        (),
    ): f"{_PARKING}::test_a_republishing_counts_its_reading_from_the_beginning",
    Planted(
        "tried-comes-next-not-last",
        "examples/subscriber/sqlite_store.py",
        '"tried": datetime.now(UTC).isoformat(),\n',
        '"tried": f"{record.attempts:09}",\n',
        _NO_PROFILE,
        (),
    ): f"examples/subscriber/tests/test_sqlite_store.py::TestSqliteStore::{_LAST_TRIED}",
    Planted(
        "tried-comes-next-not-last-in-cosmos",
        "cosmos_outbox/cosmos/inbox/set_aside.py",
        '"triedAt": self.clock().isoformat(),\n',
        '"triedAt": f"{record.attempts:09}",\n',
        _NO_PROFILE,
        (),
    ): f"tests/contract/test_subscriber_stores.py::TestCosmosStore::{_LAST_TRIED}",
}
"""The bugs, each with its test."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planted")
    copy_tracked(folder)
    return folder


@pytest.mark.deep
@pytest.mark.parametrize(("bug", "test"), SEEN_BY.items(), ids=lambda each: getattr(each, "name", ""))
def test_a_bug_is_seen_by_its_test(bug: Planted, test: str, copy: Path) -> None:
    sound = (copy / bug.file).read_text()
    plant(bug, copy)
    done = subprocess.run(
        [sys.executable, "-B", "-m", "pytest", "-q", test],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": python_path(copy)},
        capture_output=True,
        text=True,
        check=False,
    )
    (copy / bug.file).write_text(sound)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr


@pytest.mark.parametrize("bug", SEEN_BY, ids=lambda bug: bug.name)
def test_a_bug_can_be_planted(bug: Planted) -> None:
    text = (ROOT / bug.file).read_text()
    assert text.count(bug.old) == 1, f"{bug.file} has changed: plant {bug.name} anew"
    compile(text.replace(bug.old, bug.new), bug.file, "exec")
