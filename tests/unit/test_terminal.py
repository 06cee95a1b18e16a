"""What others have stored steers no operator's terminal and forges no line, whichever command prints it."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from cosmos_outbox.cli import command, preflight, publish_again
from cosmos_outbox.cli.main import PARTS, READER_GONE
from cosmos_outbox.cosmos.maintenance.event_list import EventPage, EventState, ListedEvent
from cosmos_outbox.cosmos.relay.forwarding import RelayFailure
from cosmos_outbox.cosmos.relay.parked_documents import Discarding, ParkedEvent, ParkedPage, ParkedState
from cosmos_outbox.inbox.errors import NotApplied, StoreUnavailable
from cosmos_outbox.inbox.message import Delivery
from cosmos_outbox.inbox.set_aside import Record, RecordPage, RecordState
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.operations.relay_status import RelayStatus
from cosmos_outbox.operations.republish import RepublishingProgress
from cosmos_outbox.operations.stuck import StuckList
from cosmos_outbox.operations.subscriber import Subscription
from cosmos_outbox.outbox.errors import FailureReason, StillUnsendable
from cosmos_outbox.preflight.report import Subject
from cosmos_outbox.service import Wired
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.worker import draining
from infra.bootstrap import service
from tests.support.contacts import NOON
from tests.support.paths import ROOT

HOSTILE = "\x1b[2J\nFORGED\r\x9b1A\u202egnp\u2028\x7f\ud800"
"""Clears the screen, begins a line, moves the cursor (C1), turns the direction, and cannot be written in UTF-8."""
KEY, ID = AggregateKey("contact", HOSTILE), "0" * 32


def parked(*, discarded: bool = False) -> ParkedEvent:
    given_up = Discarding(NOON, HOSTILE) if discarded else None
    state = ParkedState.DISCARDED if discarded else ParkedState.IN_THE_WAY
    return ParkedEvent(
        ID, HOSTILE, KEY, HOSTILE, 1, HOSTILE, NOON, state, 1, given_up, is_skip=False,
        document={"text": HOSTILE},
    )  # fmt: skip


def record() -> Record:
    delivery = Delivery(HOSTILE, HOSTILE, 1, HOSTILE.encode(errors="replace"), {HOSTILE: HOSTILE})
    return Record(
        ID, RecordState.WAITING, HOSTILE, NOON, HOSTILE, 1, HOSTILE, KEY, HOSTILE, 1, delivery=delivery
    )


def operator() -> Any:
    parking = SimpleNamespace(
        page=AsyncMock(side_effect=lambda *_, discarded: ParkedPage([parked(discarded=discarded)], None)),
        show=AsyncMock(return_value=parked()),
        replay=AsyncMock(side_effect=StillUnsendable(HOSTILE)),
        discard=AsyncMock(side_effect=StillUnsendable(HOSTILE)),
        max_age_seconds=60,
    )
    failure = RelayFailure(FailureReason.BROKER_REFUSES, NOON, HOSTILE)
    status = RelayStatus([], [HOSTILE], Counter(["contact"]), 1, [failure])
    listed = ListedEvent(HOSTILE, 1, HOSTILE, HOSTILE, HOSTILE, EventState.PARKED, ID)
    return SimpleNamespace(
        parking=parking,
        observer=SimpleNamespace(status=AsyncMock(return_value=status)),
        event_list=SimpleNamespace(page=AsyncMock(return_value=EventPage(KEY, [listed], None))),
    )


def wired() -> Any:
    made, retrier = Mock(spec=Wired), Mock()
    made.service, made.operator, made.resources = service, operator(), AsyncExitStack()
    made.settings = SimpleNamespace(event_ttl_seconds=60, transport=SimpleNamespace(name="webhook"))
    retrier.page = AsyncMock(return_value=RecordPage([record()], None))
    retrier.show = AsyncMock(return_value=record())
    retrier.apply, retrier.discard = (
        AsyncMock(side_effect=NotApplied(HOSTILE)),
        AsyncMock(side_effect=StoreUnavailable(HOSTILE)),
    )
    retrier.counts = AsyncMock(return_value={RecordState.WAITING: 1})
    healing = SimpleNamespace(progress=AsyncMock(return_value=None))
    inbox = SimpleNamespace(heal=AsyncMock(side_effect=NotApplied(HOSTILE)))
    model: Any = SimpleNamespace(inbox=inbox, healing=healing)
    subscriber: Any = SimpleNamespace(retrier=retrier)
    subscription = Subscription(subscriber, model)
    [name] = [each.name for each in service.subscribers]
    made.subscriptions = {name: subscription}
    made.stuck = StuckList(made.operator.parking, {"contact-directory": retrier})
    return made


async def republished(_: object, __: object, progress: RepublishingProgress) -> None:
    progress.skipped[KEY] = HOSTILE


async def found(*_: object) -> Sequence[object]:
    return [Subject(HOSTILE).wrong(HOSTILE, HOSTILE)]


async def drained(*_: object) -> draining.Drained:
    return draining.Drained(0, whole=False, reason=HOSTILE)


TIMES = ["--since", "2026-03-01T12:00:00Z", "--to", "2026-03-01T13:00:00Z"]
WITH_STORED_TEXT: Sequence[Sequence[str]] = [
    ["relay", "--once"],
    ["subscriber"],
    ["preflight"],
    ["status"],
    ["status", "--json"],
    ["stuck"],
    ["stuck", "show", ID],
    ["stuck", "--discarded"],
    ["stuck", "--json"],
    ["retry", ID],
    ["discard", ID, "--reason", "r"],
    ["events", "contact", "7"],
    ["events", "contact", "7", "--json"],
    ["publish-again", *TIMES],
    ["rebuild", "--id", "7"],
]
OWN_TEXT_ALONE = {"init", "schemas", "resources"}


@pytest.mark.parametrize("arguments", WITH_STORED_TEXT, ids=" ".join)
def test_no_command_prints_stored_text_raw(
    arguments: Sequence[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, *rest = arguments
    made = SimpleNamespace(name=service.name, wire=lambda _: wired(), subscribers=service.subscribers)
    if name == "subscriber":
        made.wire = Mock(side_effect=Misconfigured(HOSTILE))
    monkeypatch.setattr(command, "named", lambda *_, **__: (made, {}))
    monkeypatch.setattr(preflight, "_plan", lambda *_: None)
    monkeypatch.setattr(preflight, "_check", found)
    monkeypatch.setattr(publish_again, "republish", republished)
    monkeypatch.setattr(draining, "drain", drained)
    assert PARTS[name].main()(rest) in (0, 1, 2)
    printed = "".join(capsys.readouterr())
    assert "FORGED" in printed, "the case has stored text"
    assert [each for each in printed if not each.isprintable() and each != "\n"] == []
    assert [line for line in printed.splitlines() if line.startswith("FORGED")] == []


def test_each_command_that_prints_stored_text_is_tried() -> None:
    assert PARTS.keys() == {name for name, *_ in WITH_STORED_TEXT} | OWN_TEXT_ALONE


def test_commands_print_by_the_functions_that_escape_alone() -> None:
    """The list of commands, and a new service's first steps, are lines of our own."""
    folder = ROOT / "cosmos_outbox/cli"
    printing = {file.name for file in folder.glob("*.py") if " print(" in file.read_text()}
    assert printing == {"command.py", "init.py", "main.py"}


def test_a_command_whose_reader_has_left_ends_in_silence(tmp_path: Path) -> None:
    """As in ``cosmos-outbox schemas FOLDER | head``."""
    reads, writes = os.pipe()
    os.close(reads)
    done = subprocess.run(
        [sys.executable, "-m", "cosmos_outbox", "schemas", str(tmp_path), "--service", "infra.bootstrap"],
        stdout=writes, stderr=subprocess.PIPE, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    os.close(writes)
    assert (done.returncode, done.stderr) == (READER_GONE, "")
