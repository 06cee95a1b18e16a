"""What the model of looked-up targets allows of a list, and of outcomes by it, passes; what breaks a rule is found."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from cosmos_outbox.cosmos.inbox.reaction_lists import document_id
from cosmos_outbox.cosmos.inbox.reactions import record_id
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.inbox.reaction_decision import InOrder, TargetPlace, list_name
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from replayed.commits import Commit, Document, Ended
from replayed.lists import ListsReplayed
from simulated.reacting import first_of_a_pile, listed_by, service

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
REACTION = "marks-listed"
MESSAGE = Event("p-1", AggregateKey("pile", "p"), "", 1, NOON, {}, source="/piles")


class Told:
    """The steps of a run in which the list is {a} until the message is sent."""

    def __init__(self) -> None:
        self.documents: dict[str, Document] = {}
        self.steps: list[Commit | Ended] = []
        self.lists("a")

    def lists(self, *piles: str) -> "Told":
        """What a look-up tells from now on."""
        data = {"marks": [*reversed(piles)]}
        return self.writes({"id": "any-one", "partitionKey": "any-one", "type": "heap", "data": data})

    def sent(self) -> "Told":
        return self.writes(first_of_a_pile())

    def stores(self, *piles: str, reason: str = "") -> "Told":
        name = document_id(list_name(REACTION, MESSAGE))
        targets = {f"newest-{each}": f"newest-{each}" for each in piles}
        data = {"reaction": REACTION, "targets": targets, "reason": reason}
        return self.writes({"id": name, "partitionKey": name, "type": "reactionTargets", "data": data})

    def gives_up(self) -> "Told":
        return self.stores(reason="an operator said so")

    def changes(self, pile: str, outcome: str = "applied") -> "Told":
        place = TargetPlace.of(REACTION, "heap", f"newest-{pile}", f"newest-{pile}", MESSAGE, InOrder.ANY)
        data = {"reaction": REACTION, "outcome": outcome}
        target = place.partition_key
        return self.writes(
            {"id": record_id(place), "partitionKey": target, "type": "reactionRecord", "data": data}
        )

    def ends(self, how: str = "handled") -> "Told":
        self.steps.append(Ended(how, REACTION, "p-1", "subscriber-1"))
        return self

    def writes(self, document: dict[str, Any]) -> "Told":
        self.steps.append(Commit(NOON, ((self.documents.get(document["id"]), document),)))
        self.documents[document["id"]] = document
        return self

    def found(self) -> list[str]:
        return [*ListsReplayed(service, REACTION, listed_by).not_allowed(self.steps)]


def sent() -> Told:
    return Told().sent()


@pytest.mark.parametrize(
    "way",
    [
        lambda: sent().stores("a").changes("a").ends(),
        lambda: sent().lists("a", "b").stores("a").changes("a").ends(),  # looked up, and then it changes
        lambda: (
            sent().lists("a", "b").stores("a", "b").lists("c").changes("b", "refused").changes("a").ends()
        ),
        lambda: sent().lists("a", "b").stores("a", "b").changes("a").changes("b").ends().ends(),
        lambda: sent().stores("a").changes("a", "refused").changes("a"),  # an operator applies it
        lambda: sent().gives_up().ends("gave up").ends(),
        lambda: sent().lists("a", "b").stores("a", "b").changes("a", "discarded").changes("b").ends(),
        lambda: (
            sent().lists("a", "b").stores("b", "a").changes("a").changes("b", "discarded").ends("gave up")
        ),
        lambda: sent().lists().stores().ends(),
    ],
)
def test_what_a_call_or_an_operator_may_do_is_allowed(way: Callable[[], Told]) -> None:
    assert way().found() == []


WRONG: dict[str, tuple[Callable[[], Told], str]] = {
    "an old list is stored": (lambda: Told().lists("b").sent().stores("a"), "list_fenced"),
    "a list of no time is stored": (lambda: sent().lists("b").stores("a", "b"), "list_fenced"),
    "a list is stored anew": (lambda: sent().stores("a").lists("b").stores("b"), "list_stored_once"),
    "a target is changed before a list is stored": (lambda: sent().changes("a").stores("a"), "whose list is {}"),
    "a target is changed that the list has not": (
        lambda: sent().stores("a").lists("b").changes("b"),
        "newest-b gets applied by p-1, whose list is {newest-a}",
    ),
    "who gives up keeps a list": (lambda: sent().stores("a", reason="x"), "can be given up"),
    "a target is changed after it was given up": (lambda: sent().gives_up().changes("a"), "whose list is {}"),
    "a target is given up that the list has not": (
        lambda: sent().stores("a").changes("b", "discarded"),
        "newest-b gets discarded",
    ),
    "a message is completed without a list": (lambda: sent().ends(), "has no list"),
    "a message is completed too early": (
        lambda: sent().lists("a", "b").stores("a", "b").changes("a").ends(),
        "{newest-b} of {newest-a, newest-b} has no outcome",
    ),
    "a message is given up at some of its targets": (
        lambda: sent().lists("a", "b").stores("a", "b").changes("a", "discarded").ends("gave up"),
        "{newest-b} of {newest-a, newest-b} has no outcome",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", WRONG)
def test_each_mistake_is_found(mistake: str) -> None:
    way, why = WRONG[mistake]
    told = way().found()
    assert told
    assert why in told[0]
