"""A write that the model of parking allows passes; each write that breaks one of its rules is found."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from replayed.commits import Commit, Document
from replayed.parking import parking_steps

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass
class Lot:
    """A store that takes every write, and notes it; each takes a second."""

    documents: dict[str, Document] = field(default_factory=dict)
    commits: list[Commit] = field(default_factory=list)
    now: datetime = NOON

    def write(self, *documents: Document, gone: tuple[str, ...] = ()) -> "Lot":
        self.now += timedelta(seconds=1)
        written = ((self.documents.get(each["id"]), each) for each in documents)
        changes = (*written, *((self.documents[each], None) for each in gone))
        for each in documents:
            self.documents[each["id"]] = each
        for name in gone:
            del self.documents[name]
        self.commits.append(Commit(self.now, changes, by="relay-1"))
        return self

    @property
    def marker(self) -> Document:
        return self.documents["marker"]

    def changed(self, **values: Any) -> dict[str, Any]:
        return {**self.marker, **values}

    def parks(self, *sequences: int, behind: bool = False, accepted: int | None = None) -> "Lot":
        items = [item(sequence) for sequence in sequences]
        before = self.documents.get("marker") or marker()
        after = {**before, "type": "parkedAggregate", "waiting": before["waiting"] + len(items)}
        if not behind:
            after |= {"blockedBy": f"e{sequences[0]}", "stands": True}
            after |= {"accepted": sequences[0] - 1 if accepted is None else accepted}
        return self.write(after, *items)

    def claims(self, name: str = "replay-1", seconds: float = 60) -> "Lot":
        until = (self.now + timedelta(seconds=seconds)).isoformat()
        return self.write(self.changed(stands=False, replay=name, replayUntil=until))

    def settles(self, *sequences: int, free: bool = False, keeps: bool = False, **values: Any) -> "Lot":
        ended = {} if keeps else {"replay": None, "replayUntil": None}
        freed = {"type": "freedAggregate", "stands": False, "blockedBy": None} if free else {}
        waiting = self.marker["waiting"] - len(sequences)
        accepted = max(self.marker["accepted"], *sequences, 0)
        after = self.changed(**(ended | freed | {"waiting": waiting, "accepted": accepted} | values))
        return self.write(after, gone=tuple(f"item-{each}" for each in sequences))

    def discards(self, sequence: int, **values: Any) -> "Lot":
        notice = item(sequence) | {"id": f"item-{sequence}n", "eventId": f"n{sequence}", "notice": True}
        given_up = {**self.documents[f"item-{sequence}"], "type": "discardedEvent"}
        discarded = {**self.marker["discarded"], f"e{sequence}": self.now.isoformat()}
        return self.write(
            self.changed(**({"stands": False, "discarded": discarded} | values)), given_up, notice
        )

    def found(self) -> list[str]:
        return [each.why for each in parking_steps(self.commits)]


def marker() -> dict[str, Any]:
    return {
        "id": "marker", "type": "freedAggregate", "aggregateType": "thing", "aggregateId": "1", "blockedBy": None,
        "stands": False, "replay": None, "replayUntil": None, "accepted": 0, "waiting": 0, "discarded": {},
    }  # fmt: skip


def item(sequence: int, *, after: int | None = None) -> dict[str, Any]:
    """With ``after`` an event without a sequence, behind that one."""
    position = f"{sequence:020d}-0" if after is None else f"{after:020d}-1-{sequence:020d}"
    return {
        "id": f"item-{sequence}", "type": "parkedEvent", "aggregateType": "thing", "aggregateId": "1",
        "eventId": f"e{sequence}", "position": position,
    }  # fmt: skip


def blocked() -> Lot:
    return Lot().parks(2, 3)


def test_the_whole_way_from_a_refusal_to_freedom_is_allowed() -> None:
    lot = blocked().parks(4, behind=True).claims().settles(stands=True, blockedBy="e2").discards(2)
    lot.claims("replay-2").write(
        lot.changed(type="freedAggregate", waiting=0, accepted=4, replay=None, replayUntil=None),
        gone=("item-2n", "item-3", "item-4"),
    )
    assert lot.found() == []


def test_a_replay_that_sends_all_frees_the_aggregate() -> None:
    assert blocked().claims().settles(2, 3, free=True).found() == []


def test_a_replay_may_settle_in_parts_and_go_on_under_its_claim() -> None:
    assert (
        blocked().parks(4, behind=True).claims().settles(2, keeps=True).settles(3, 4, free=True).found() == []
    )


def test_a_replay_may_end_at_an_event_that_is_refused_or_when_the_broker_is_away() -> None:
    assert blocked().claims().settles(2, stands=True, blockedBy="e3").found() == []
    assert blocked().claims().settles(2).claims("replay-2").settles(3, free=True).found() == []


def test_a_notice_is_sent_in_the_place_of_a_discarded_event() -> None:
    lot = blocked().discards(2).claims()
    lot.write(
        lot.changed(type="freedAggregate", waiting=0, accepted=3, replay=None, replayUntil=None),
        gone=("item-2n", "item-3"),
    )
    assert lot.found() == []


def test_a_notice_that_the_broker_refuses_is_dropped_and_the_replay_goes_on() -> None:
    lot = blocked().discards(2).claims()
    lot.write(lot.changed(waiting=1), gone=("item-2n",))
    assert lot.settles(3, free=True).found() == []


def test_a_claim_that_has_run_out_is_taken_over() -> None:
    lot = blocked().claims(seconds=10)
    lot.now += timedelta(minutes=2)
    assert lot.claims("replay-2").settles(2, 3, free=True).found() == []


def test_what_the_model_leaves_out_may_change() -> None:
    lot = blocked()
    assert lot.write(lot.changed(erased={"0": 7}, reason="another")).found() == []


def test_a_free_marker_expires_and_a_blocked_one_does_not() -> None:
    assert blocked().claims().settles(2, 3, free=True).write(gone=("marker",)).found() == []
    [why] = Lot().parks(2).write(gone=("marker", "item-2")).found()
    assert "blocked-never-expires" in why


def test_events_without_a_sequence_are_parked_and_settled_in_their_places() -> None:
    lot = Lot()
    after = {
        **marker(),
        "type": "parkedAggregate",
        "blockedBy": "e9",
        "stands": True,
        "accepted": 1,
        "waiting": 2,
    }
    lot.write(after, item(9, after=1), item(2)).claims()
    lot.settles(9, keeps=True, accepted=1).settles(2, free=True)
    assert lot.found() == []


WRONG: dict[str, Callable[[], Lot]] = {
    "the count is another one": lambda: blocked().claims().settles(2, waiting=2),
    "two are counted that one write parks": lambda: Lot().write(
        {
            **marker(),
            "type": "parkedAggregate",
            "blockedBy": "e2",
            "stands": True,
            "accepted": 1,
            "waiting": 2,
        },
        item(2),
    ),
    "an event is parked and its marker is not changed": lambda: blocked().write(item(4)),
    "an event is removed without a claim": lambda: blocked().settles(2),
    "one behind another is out before it": lambda: blocked().claims().settles(3),
    "a second replay claims while the first one sends": lambda: (
        blocked().claims().claims("replay-2").settles(2, 3, free=True)
    ),
    "a claim leaves the name in the way": lambda: (lot := blocked()).write(
        lot.changed(replay="r", replayUntil=(lot.now + timedelta(minutes=1)).isoformat())
    ),
    "an aggregate is freed while something waits": lambda: blocked().claims().settles(2, free=True),
    "an aggregate stays blocked by nothing": lambda: blocked().claims().settles(2, 3),
    "an event is discarded that is not in the way": lambda: blocked().discards(3),
    "a discarded id is not remembered": lambda: blocked().discards(2, discarded={}),
    "a discarded event leaves no notice": lambda: (lot := blocked()).write(
        lot.changed(stands=False, waiting=1, discarded={"e2": lot.now.isoformat()}),
        {**lot.documents["item-2"], "type": "discardedEvent"},
    ),
    "ids are forgotten by a new block": lambda: (
        blocked()
        .discards(2)
        .claims()
        .write({**marker(), "accepted": 3}, gone=("item-2n", "item-3"))
        .write(
            {
                **marker(),
                "type": "parkedAggregate",
                "blockedBy": "e4",
                "stands": True,
                "accepted": 3,
                "waiting": 1,
            },
            item(4),
        )
    ),
    "what a replay has sent is parked again": lambda: (
        blocked().claims().settles(2, 3, free=True).parks(3, accepted=3)
    ),
    "an event that the broker has is parked behind others": lambda: (
        blocked().claims().settles(2).parks(1, behind=True)
    ),
    "the broker has less than before": lambda: blocked().claims().settles(2, 3, free=True, accepted=0),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_each_mistake_is_found(mistake: str) -> None:
    assert WRONG[mistake]().found()


def test_what_is_found_says_when_whose_and_what() -> None:
    lot = blocked().settles(2)
    [told] = map(str, parking_steps(lot.commits))
    assert told.startswith("2026-03-01T12:00:02+00:00 relay-1: thing/1: no step leads from blocked by 2000")


def test_documents_of_no_aggregate_and_others_are_left_alone() -> None:
    alone = item(7) | {"aggregateType": None, "aggregateId": None}
    assert Lot().write(alone).write(gone=("item-7",)).write({"id": "x", "type": "else"}).found() == []
