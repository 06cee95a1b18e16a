"""A write of an entry that the model of the inbox allows passes; each that breaks one of its rules is found."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from outbox_simulation.judging.history import History
from outbox_simulation.judging.records import HandedOut, Stored
from replayed.commits import Commit
from replayed.inbox import inbox_steps

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ACTIONS = {1: "Made", 2: "Renamed", 3: "Renamed", 4: "Ended"}


class Things:
    """The language of things, which have a name."""

    created = "Made"
    deleted = "Ended"
    aggregate_id = "thingId"

    def after(self, state: Mapping[str, Any], action: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**state, "name": body["name"]}

    def values(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        return state

    def entry(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"shown": state["name"]}


def run(
    last: int = 4, *, discarded: int = 0, sent: bool = False, sequences: dict[int, int] | None = None
) -> History:
    """A thing of so many events; one of them was discarded, and perhaps sent all the same."""
    told = History()
    for number in range(1, last + 1):
        told.add([stored(number, (sequences or {}).get(number, number))])
        if number != discarded or sent:
            told.add([handed_out(number, f"e{number}", ACTIONS[number], {})])
        if number == discarded:
            body = {"discardedEventId": f"e{number}"}
            told.add([handed_out(number + 10, f"n{number}", "EventDiscarded", body)])
    return told


def stored(number: int, sequence: int) -> Stored:
    body = {"name": f"name {number}"}
    return Stored(
        at=number, event=f"e{number}", aggregate="1", action=ACTIONS[number], sequence=sequence, body=body
    )


def handed_out(number: int, event: str, action: str, body: dict[str, Any]) -> HandedOut:
    return HandedOut(
        at=number, broker_number=number, delivery_count=0, lock="", message_id=event, aggregate="1",
        subject=action, sequence=number, body=body,
    )  # fmt: skip


def entry(
    sequence: int, event: str | None = "", *, shows: int | None = None, deleted: bool = False
) -> dict[str, Any]:
    """An entry by its event, unless another one or none is named; it shows the name of that sequence."""
    named = f"e{sequence}" if event == "" else event
    data = None if deleted else {"shown": f"name {shows or sequence}"}
    return {
        "id": "1", "type": "entry", "lastSequence": sequence, "lastEventId": named, "deleted": deleted, "data": data,
    }  # fmt: skip


def healed(sequence: int) -> dict[str, Any]:
    return entry(sequence, None)


def found(told: History, *versions: dict[str, Any] | None) -> list[str]:
    """What is wrong with these versions of an entry, one after the other; the first replaces none."""
    commits = [
        Commit(NOON, ((before, after),))
        for before, after in zip((None, *versions), versions, strict=False)
        if before is not None or after is not None
    ]
    return [each.why for each in inbox_steps(commits, told, Things())]


ENDED = entry(4, deleted=True)


@pytest.mark.parametrize(
    "versions",
    [
        [healed(1), entry(2), entry(3), ENDED],
        [healed(1), healed(3), ENDED],
        [entry(1), entry(2), entry(3), ENDED],
        [healed(2), {**healed(2), "blockedSince": "noon"}, entry(3)],
        [entry(4, None, deleted=True)],
        [healed(1), entry(4, None, deleted=True), None],
        [healed(2), entry(2, None, deleted=True)],
    ],
)
def test_what_a_process_may_do_is_allowed(versions: list[dict[str, Any] | None]) -> None:
    assert found(run(), *versions) == []


@pytest.mark.parametrize(
    ("versions", "why"),
    [
        ([entry(2)], "no step leads from no entry to sequence 2"),
        ([healed(1), entry(1)], "no step leads"),
        ([healed(1), entry(3)], "no step leads"),
        ([healed(3), entry(2)], "it goes back from sequence 3 to 2"),
        ([healed(1), entry(2, "e3")], "no step leads"),
        ([healed(1), entry(2, shows=3)], "at sequence 2 it shows what its aggregate never was"),
        ([healed(9)], "at sequence 9 it shows what its aggregate never was"),
        ([healed(1), entry(3, deleted=True)], "no step leads"),
        ([ENDED | {"lastEventId": None}, healed(3)], "it goes back"),
        ([healed(2), entry(2)], "no step leads"),
        ([healed(2), None], "a living entry is removed"),
    ],
)
def test_each_mistake_is_found(versions: list[dict[str, Any] | None], why: str) -> None:
    [*_, last] = found(run(), *versions)
    assert why in last


def test_a_living_aggregates_entry_is_not_deleted() -> None:
    assert found(run(3), healed(2), entry(2, None, deleted=True)) == [
        "no step leads from sequence 2, alive, healed to sequence 2, deleted, healed"
    ]


def test_a_deleted_entry_does_not_come_back() -> None:
    gone = entry(2, None, deleted=True)
    assert found(run(3), gone, healed(3))[-1].startswith("no step leads from sequence 2, deleted")


def test_what_was_discarded_is_healed_and_never_applied() -> None:
    assert found(run(3, discarded=2), healed(1), healed(2), entry(3)) == []
    assert len(found(run(3, discarded=2), healed(1), entry(2))) == 1
    assert found(run(3, discarded=2, sent=True), healed(1), entry(2)) == []


def test_an_aggregate_with_an_event_without_a_sequence_is_left_alone() -> None:
    assert found(run(3, sequences={2: -1}), healed(1), entry(3)) == []


def test_other_documents_and_aggregates_are_left_alone() -> None:
    assert found(run(), {"id": "2", "type": "entry"}, {"id": "1", "type": "setAside"}) == []
