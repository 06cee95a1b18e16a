"""A transaction that the model of reactions allows passes; each that breaks one of its rules is found."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cosmos_outbox.cosmos.aggregates.documents import request_id
from cosmos_outbox.cosmos.inbox.reactions import record_id
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.inbox.reaction_decision import InOrder, TargetPlace
from cosmos_outbox.inbox.receiver import LONGEST_CALL_SECONDS
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from replayed.commits import Commit, Document
from replayed.reactions import reaction_steps
from simulated.reacting import service

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = 86_400
Documents = list[dict[str, Any]]


def event(sequence: int, *, of: str = "p", kind: str = "pile", cause: str = "") -> dict[str, Any]:
    name = f"{of}-{sequence}"
    data = {"id": name, "action": "PileGrown", "sequence": sequence, "causationId": cause}
    return {"id": name, "partitionKey": of, "type": "domainEvent", "aggregateType": kind, "data": data}


def place(order: str, sequence: int) -> TargetPlace:
    message = Event(f"p-{sequence}", AggregateKey("pile", "p"), "", sequence, NOON, {}, source="/piles")
    return TargetPlace.of(f"marks-{order}", "heap", "h", "h", message, InOrder(order))


def record(
    order: str, sequence: int, outcome: str = "applied", *, heap: int | None = None, ttl: int = DAY
) -> dict[str, Any]:
    """Of a message; ``heap``: the sequence of the heap after it, else that of the message."""
    at_heap = sequence if heap is None else heap
    data = {"reaction": f"marks-{order}", "outcome": outcome, "sequence": at_heap}
    name = record_id(place(order, sequence))
    return {"id": name, "partitionKey": "h", "type": "reactionRecord", "data": data, "ttl": ttl}


def cursor(order: str, last: int) -> dict[str, Any]:
    name = request_id(f"cursor-{place(order, 1).cursor}")
    return {"id": name, "partitionKey": "h", "type": "reactionCursor", "data": {"last": last}}


def heap(sequence: int, *, deleted: bool = False) -> dict[str, Any]:
    data = {"lastSequence": sequence, "deleted": deleted}
    return {"id": "h", "partitionKey": "h", "type": "heap", "data": data}


def applied(order: str, sequence: int) -> Documents:
    """A message that changes the heap, as it is written."""
    moved = [] if order == "any" else [cursor(order, sequence)]
    caused = event(sequence, of="h", kind="heap", cause=f"p-{sequence}")
    return [record(order, sequence), *moved, heap(sequence), caused]


def no(order: str, sequence: int, outcome: str, at: int) -> Documents:
    """A message that changes nothing of a heap at this sequence."""
    moved = [] if order == "any" else [cursor(order, max(at, sequence))]
    return [record(order, sequence, outcome, heap=at), *moved]


def found(*transactions: Documents, apart: float = 1) -> list[str]:
    """What is wrong with these, behind four messages."""
    documents: dict[str, Document] = {}
    commits = [Commit(NOON, tuple((None, event(sequence)) for sequence in range(1, 5)))]
    for number, written in enumerate(transactions, start=1):
        changes = tuple((documents.get(each["id"]), each) for each in written)
        documents |= {each["id"]: each for each in written}
        commits.append(Commit(NOON + timedelta(seconds=number * apart), changes))
    return [each.why for each in reaction_steps(commits, service)]


@pytest.mark.parametrize(
    "transactions",
    [
        [applied("any", 2), applied("any", 1)],
        [applied("each", 1), applied("each", 2), no("each", 3, "refused", 2), applied("each", 4)],
        [applied("newest", 2), applied("newest", 4), no("newest", 3, "nothing", 4)],
        [[heap(1)], no("any", 1, "refused", 1), [record("any", 1, heap=2), heap(2)]],
        [[heap(1)], no("any", 1, "refused", 1), no("any", 1, "discarded", 1)],
        [[heap(2, deleted=True)], no("any", 1, "refused", 0)],
        [[heap(1)], no("each", 1, "discarded", 1)],
        [[heap(1)], [heap(2)], no("any", 1, "nothing", 1)],
        [[heap(1)], [heap(2, deleted=True)], no("any", 1, "nothing", 1)],
        [[heap(1)], no("any", 1, "refused", 0)],
    ],
)
def test_what_a_message_or_an_operator_may_store_is_allowed(transactions: list[Documents]) -> None:
    assert found(*transactions) == []


WRONG: dict[str, tuple[list[Documents], str]] = {
    "a message is applied twice": ([applied("any", 1), applied("any", 1)], "through_the_record"),
    "a no becomes a change": ([[heap(1)], no("any", 1, "nothing", 1), [record("any", 1, heap=2), heap(2)]],
                              "through_the_record"),
    "a message changes without a record": ([applied("any", 1)[1:]], "one_batch"),
    "a record of a change comes alone": ([[heap(1)], [record("any", 1)]], "no step leads"),
    "a no comes with a change": ([[heap(1)], [record("any", 1, "nothing", heap=2), heap(2)]], "no step leads"),
    "one before it is left out": ([applied("each", 2)], "no step leads"),
    "what was passed is applied": ([applied("newest", 3), [record("newest", 2, heap=4), cursor("newest", 3), heap(4)]],
                                   "no step leads"),
    "the cursor goes back": ([applied("newest", 3), [record("newest", 2, "nothing", heap=3), cursor("newest", 2)]],
                             "no step leads"),
    "the cursor stands still": ([applied("each", 1)[:1] + applied("each", 1)[2:]], "no step leads"),
    "a refusal does not move the cursor": ([[heap(1)], no("each", 1, "refused", 1)[:1]], "no step leads"),
    "a place is discarded before its turn": ([[heap(2)], no("each", 2, "discarded", 2)], "no step leads"),
    "what is deleted is changed": ([[heap(1, deleted=True)], [record("any", 2), heap(2)]], "no step leads"),
    "a change tells another sequence": ([[heap(2)], [record("any", 2), heap(3)]], "a sequence that its target"),
    "the record tells another sequence": ([[heap(3)], no("any", 1, "nothing", 2)], "a sequence that its target"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", WRONG)
def test_each_mistake_is_found(mistake: str) -> None:
    transactions, why = WRONG[mistake]
    assert any(why in told for told in found(*transactions))


def test_after_its_end_a_record_is_none() -> None:
    assert found([heap(1)], no("any", 1, "nothing", 1), no("any", 1, "nothing", 1), apart=DAY + 1) == []


def test_a_no_is_not_of_a_state_that_is_long_past() -> None:
    transactions = [heap(1)], [heap(2)], [heap(3)], no("any", 1, "nothing", 1)
    assert found(*transactions, apart=20) == []
    assert found(*transactions, apart=LONGEST_CALL_SECONDS + 1) == [
        "the record of p-1 tells a sequence that its target does not have"
    ]
