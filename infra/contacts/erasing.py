"""What is left of an erased contact is an id and a sequence: nothing that comes late brings the person's data back."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID, uuid4

from application.contacts import Contacts
from application.directory import DirectoryEntry
from application.errors import ContactNotFound
from domain.contact import Contact
from domain.events import ContactDeletedEvent
from domain.values import ContactState
from inbox.entry import Entry, Stamp
from inbox.errors import Contended, EntryChanged
from inbox.event import AggregateKey as EntryKey
from inbox.state import ATTEMPTS, StateInbox
from infra.bootstrap import Application
from infra.contacts.documents import CONTACTS
from infra.cosmos.documents import Item
from infra.cosmos.erasure import ParkedEraser, PartitionEraser, Remains, SetAsideEraser
from infra.cosmos.marker_documents import Owners
from infra.erasing import Eraser
from infra.settings import Settings
from outbox.aggregate import STORED, AggregateKey
from outbox.unit_of_work import Origin


def wire_eraser(settings: Settings, application: Application) -> Eraser:
    """The eraser of contacts. Opens no connection: the first use opens it."""
    outbox = application.outbox
    return Eraser(
        outbox=outbox,
        partition=PartitionEraser(outbox.container(settings.cosmos_container), REMAINS),
        parked=ParkedEraser(outbox.container(settings.cosmos_parked_container), Owners(CONTACTS.parked)),
        set_aside=SetAsideEraser(
            outbox.container(settings.cosmos_set_aside_container),
            settings.servicebus_subscription,
            settings.event_ttl_seconds,
        ),
        delete=lambda key: _delete(application.contacts, key),
        collect=application.subscriber.collect,
        empty_read_model=lambda key: _empty_entry(application.read_model.inbox, key),
    )


def _data(stored: Mapping[str, Any]) -> Item:
    state = ContactState.model_validate(stored, by_alias=True, by_name=False, context=STORED)
    return Contact.erased(state).model_dump(mode="json", by_alias=True)


REMAINS = Remains(Contact.aggregate_type, _data, kept_actions={ContactDeletedEvent.__name__})


async def _delete(contacts: Contacts, key: AggregateKey) -> None:
    try:
        await contacts.delete(UUID(key.id), Origin(correlation_id=f"erase-{uuid4()}"))
    except ContactNotFound:  # somebody else was faster; the events are looked for next
        return


async def _empty_entry(inbox: StateInbox[DirectoryEntry], key: AggregateKey) -> bool:
    """Make the entry a deleted one, whatever its sequence: events that come later find it deleted.

    Without an entry there is nothing to do: an event that comes later finds the contact deleted, or gone.
    """
    entry_key = EntryKey(*key)
    for _ in range(ATTEMPTS):
        read = await inbox.entries.newest(entry_key)
        if read is None or read.entry.deleted:
            return False
        deleted = Entry[DirectoryEntry](read.entry.last_sequence, None, None, read.entry.healed)
        try:
            await inbox.entries.put(entry_key, deleted, Stamp(inbox.clock(), None), over=read.version)
        except EntryChanged:
            continue
        return True
    raise Contended(f"the entry of {key} changed each time: run the same command again")
