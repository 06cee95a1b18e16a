"""Outcomes of one message at targets of several reactions that the model allows pass; what breaks a rule is found."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from cosmos_outbox import Names, Service
from cosmos_outbox.cosmos.inbox.reactions import record_id
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.inbox.reaction_decision import InOrder, TargetPlace
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from replayed.commits import Commit, Document, Ended
from replayed.targets import TargetsReplayed
from simulated.reacting import Pile, first_of_a_pile
from tests.support.reactions import Heap

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
TARGETS = {"bill": ["a", "b"], "tell": ["a"]}
service = Service("piles", [Pile, Heap], Names(database="piles", container="piles", topic="pile-events"))


def _react(name: str) -> None:
    @service.reaction(name, of=Pile, to=Heap, target=lambda _: TARGETS[name], order="any")
    def put(heap: Heap | None, event: Event) -> None:
        raise AssertionError("nobody reacts here")


for _name in TARGETS:
    _react(_name)


class Told:
    """The steps of a run with one message."""

    def __init__(self) -> None:
        self.steps: list[Commit | Ended] = []
        self.documents: dict[str, Document] = {}
        self.writes(first_of_a_pile())

    def records(
        self, reaction: str, target: str, outcome: str = "applied", *, id_of: tuple[str, str] | None = None
    ) -> "Told":
        message = Event("p-1", AggregateKey("pile", "p"), "", 1, NOON, {}, source="/piles")
        named, at = id_of or (reaction, target)
        name = record_id(TargetPlace.of(named, "heap", at, at, message, InOrder.ANY))
        data = {"reaction": reaction, "outcome": outcome}
        return self.writes({"id": name, "partitionKey": target, "type": "reactionRecord", "data": data})

    def ends(self, reaction: str) -> "Told":
        self.steps.append(Ended("handled", reaction, "p-1", "subscriber-1"))
        return self

    def writes(self, document: dict[str, Any], *, over: bool = True) -> "Told":
        place = f"{document['partitionKey']}/{document['id']}"
        self.steps.append(Commit(NOON, ((self.documents.get(place) if over else None, document),)))
        self.documents[place] = document
        return self

    def again(self) -> "Told":
        """The last write, as if nothing had been there."""
        return self.writes(dict([*self.documents.values()][-1]), over=False)

    def found(self) -> list[str]:
        return [*TargetsReplayed(service).not_allowed(self.steps)]


@pytest.mark.parametrize(
    "way",
    [
        lambda: (
            Told().records("bill", "a").records("bill", "b").ends("bill").records("tell", "a").ends("tell")
        ),
        lambda: Told().records("tell", "a", "refused").records("bill", "b").records("bill", "a").ends("bill"),
        lambda: Told().records("tell", "a", "refused").records("tell", "a").ends("tell").ends("tell"),
    ],
)
def test_what_a_message_may_do_at_its_targets_is_allowed(way: Callable[[], Told]) -> None:
    assert way().found() == []


WRONG: dict[str, tuple[Callable[[], Told], str]] = {
    "a call ends after its first target": (
        lambda: Told().records("bill", "a").ends("bill"),
        "('bill', 'b') has no outcome (complete_after_all)",
    ),
    "a call takes another reaction's record for its own": (
        lambda: Told().records("bill", "a").records("bill", "b").ends("bill").ends("tell"),
        "('tell', 'a') has no outcome (complete_after_all)",
    ),
    "a record's id lacks the reaction": (
        lambda: Told().records("tell", "a", id_of=("bill", "a")),
        "has another's id (reaction_in_id, target_in_id)",
    ),
    "a record's id lacks the target": (
        lambda: Told().records("bill", "b", id_of=("bill", "a")),
        "has another's id (reaction_in_id, target_in_id)",
    ),
    "a record is of no target": (lambda: Told().records("tell", "b"), "none of its targets"),
    "a target has two records": (lambda: Told().records("tell", "a").again(), "two records"),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_each_mistake_is_found(mistake: str) -> None:
    way, why = WRONG[mistake]
    [told] = way().found()
    assert why in told
