"""Shows the life of one contact: each chapter changes the contact, looks at all sides, and checks a promise."""

import asyncio
from typing import Any

from azure.servicebus import ServiceBusReceivedMessage

from tools.demo.narrator import Narrator
from tools.demo.witnesses import Answer, Subscriber, Witnesses, sequences

CONTACT = {
    "name": {"firstName": "John", "lastName": "Doe"},
    "email": "johndoe@contoso.com",
    "description": "Met at the fair",
    "company": {"companyName": "Contoso", "city": "Redmond", "country": "US"},
}
CHANGE = {
    "name": {"lastName": "Smith"},
    "company": {"companyName": "Fabrikam", "city": "Berlin", "country": "DE"},
}
POLL_SECONDS = 0.25


class Story:
    """Runs the story once, from the first chapter to the last."""

    def __init__(self, narrator: Narrator, witnesses: Witnesses, event_ttl_seconds: int) -> None:
        self._narrator = narrator
        self._witnesses = witnesses
        self._api = witnesses.api
        self._store = witnesses.store
        self._event_ttl_seconds = event_ttl_seconds

    async def run(self) -> None:
        """Runs all chapters, from the contact's creation to its deletion."""
        created = await self._create()
        async with self._witnesses.subscriber(created.body["id"]) as subscriber:
            await self._created_event(subscriber, created)
            await self._rename_and_move(subscriber, created)
            await self._stale(created)
            await self._duplicate(subscriber, created)
            await self._expire(created)
            await self._delete(subscriber, created)

    async def _create(self) -> Answer:
        self._narrator.step(
            "A contact is created",
            "One POST. The contact and its event are written in one transactional batch: both or neither.",
        )
        created = await self._api.call("POST", "/api/contacts", CONTACT)
        self._narrator.check(
            "201 with Location and ETag", created.status == 201 and created.location and created.etag
        )
        documents = await self._store.documents(created.body["id"])
        self._narrator.say("In the container, side by side in the contact's own partition:")
        self._show_documents(documents)
        self._narrator.check(
            "the contact and its event are stored together",
            [item["type"] for item in documents] == ["contact", "domainEvent"],
        )
        return created

    async def _created_event(self, subscriber: Subscriber, created: Answer) -> None:
        self._narrator.say("The change feed hands the event to the relay, and a subscriber gets it:")
        messages = await self._receive(subscriber, 1)
        self._narrator.check(
            "the event arrived, in the session that all events of this contact are in",
            sequences(messages) == [1],
        )

    async def _rename_and_move(self, subscriber: Subscriber, created: Answer) -> None:
        self._narrator.step(
            "Renamed and moved to another company, in one PATCH",
            "A JSON merge patch. Two properties change, so there are two events, in one transaction with the contact.",
        )
        patched = await self._api.call("PATCH", _path(created), CHANGE)
        self._narrator.check("200 with a new ETag", patched.status == 200 and patched.etag != created.etag)
        messages = await self._receive(subscriber, 2)
        self._narrator.check("both events arrived, in order", sequences(messages) == [2, 3])

    async def _stale(self, created: Answer) -> None:
        self._narrator.step(
            "Someone still has the old version",
            "A PATCH that pins the first ETag is refused, and nothing of it is stored: no contact, no event.",
        )
        before = await self._store.documents(created.body["id"])
        refused = await self._api.call(
            "PATCH", _path(created), {"description": "From a stale screen"}, if_match=created.etag
        )
        self._narrator.check("412 Precondition Failed", refused.status == 412)
        after = await self._store.documents(created.body["id"])
        self._narrator.check("nothing was written", _versions(after) == _versions(before))

    async def _duplicate(self, subscriber: Subscriber, created: Answer) -> None:
        self._narrator.step(
            "The same event is published twice",
            "A relay that crashed before it noted its progress does this. The topic knows the MessageId, accepts the "
            "message and drops it. To prove that, a real change follows: the event of that change comes next.",
        )
        first = subscriber.received[0]
        await subscriber.send_again(first)
        self._narrator.show(f"sent again: {first.subject}, MessageId {first.message_id}")
        await self._api.call("PATCH", _path(created), {"email": "john.smith@fabrikam.com"})
        messages = await self._receive(subscriber, 1)
        self._narrator.check("the duplicate was dropped; the next event came", sequences(messages) == [4])

    async def _expire(self, created: Answer) -> None:
        self._narrator.step(
            "Events expire",
            f"Cosmos DB removes events by itself, here after {self._event_ttl_seconds} s (EVENT_TTL_SECONDS; 10 days "
            "by default). The contact stays.",
        )
        contact_id = created.body["id"]
        async with asyncio.timeout(self._event_ttl_seconds + 5):
            while len(documents := await self._store.documents(contact_id)) > 1:  # noqa: ASYNC110 - no TTL signal
                await asyncio.sleep(POLL_SECONDS)
        self._show_documents(documents)
        self._narrator.check(
            "the events are gone, the contact is there", [item["type"] for item in documents] == ["contact"]
        )

    async def _delete(self, subscriber: Subscriber, created: Answer) -> None:
        self._narrator.step(
            "The contact is deleted",
            "For every reader the contact is gone. The event of the deletion is the last one in the session.",
        )
        deleted = await self._api.call("DELETE", _path(created))
        self._narrator.check("204 No Content", deleted.status == 204)
        gone = await self._api.call("GET", _path(created))
        self._narrator.check("404 for every reader", gone.status == 404)
        messages = await self._receive(subscriber, 1)
        self._narrator.check(
            "the deletion arrived", [message.subject for message in messages] == ["ContactDeletedEvent"]
        )
        self._narrator.say("All messages of the subscriber, from the first to the last:")
        for message in subscriber.received:
            self._show_message(message)
        self._narrator.check(
            "every event once, in order, without a gap", sequences(subscriber.received) == [1, 2, 3, 4, 5]
        )

    async def _receive(self, subscriber: Subscriber, count: int) -> list[ServiceBusReceivedMessage]:
        messages = await subscriber.next(count)
        for message in messages:
            self._show_message(message)
        return messages

    def _show_message(self, message: ServiceBusReceivedMessage) -> None:
        self._narrator.show(
            f"session {str(message.session_id)[:8]}  sequence {sequences([message])[0]}  {message.subject}  "
            f"MessageId {str(message.message_id)[:8]}"
        )

    def _show_documents(self, documents: list[dict[str, Any]]) -> None:
        for item in documents:
            shown = {name: item[name] for name in ("id", "partitionKey", "type", "data", "ttl")}
            self._narrator.show("document", shown)


def _path(created: Answer) -> str:
    return f"/api/contacts/{created.body['id']}"


def _versions(documents: list[dict[str, Any]]) -> dict[str, str]:
    return {item["id"]: item["_etag"] for item in documents}
