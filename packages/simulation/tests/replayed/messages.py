"""The messages of a run, by what is written about them: a document's id is made of the message's own names."""

from datetime import UTC, datetime
from typing import Any, NamedTuple

from cosmos_outbox.composition.declarations import ReactionDeclaration
from cosmos_outbox.cosmos.aggregates.documents import EVENT_TYPE
from cosmos_outbox.cosmos.inbox.reaction_decision import TargetRef
from cosmos_outbox.cosmos.inbox.reactions import record_id
from cosmos_outbox.inbox.message import Event
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.service import Service
from replayed.commits import Commit, Document


class Recorded(NamedTuple):
    """Of which message and target a record is."""

    reaction: ReactionDeclaration[Any]
    message: Event
    place: TargetRef


class Messages:
    """Those that were stored up to now, and the reactions that they may be for."""

    def __init__(self, service: Service) -> None:
        self.reactions = {
            each.name: each for each in service.subscribers if isinstance(each, ReactionDeclaration)
        }
        self.by_id: dict[str, Event] = {}
        self._source = f"/{service.name}"

    def saw(self, commit: Commit) -> list[Event]:
        """Those that it stores."""
        items = (now for _, now in commit.changes if now is not None and now.get("type") == EVENT_TYPE)
        events = [self._event(each) for each in items]
        self.by_id |= {each.id: each for each in events}
        return events

    def of(self, record: Document) -> Recorded | None:
        """None: its id is that of no message at this target."""
        reaction, target = self.reactions[record["data"]["reaction"]], record["partitionKey"]
        for message in self.by_id.values():
            if message.aggregate.type == reaction.aggregate_type:
                place = TargetRef.of(
                    reaction.name, reaction.to.aggregate_type, target, target, message, reaction.order
                )
                if record_id(place) == record["id"]:
                    return Recorded(reaction, message, place)
        return None

    def _event(self, item: Document) -> Event:
        data, key = item["data"], AggregateKey(item["aggregateType"], item["partitionKey"])
        return Event(
            data["id"], key, data["action"], data["sequence"], datetime.now(UTC), data, source=self._source
        )
