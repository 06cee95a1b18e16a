"""Documents that were stored before an event named its aggregate stay readable: each of them is a contact's."""

from domain.contact import Contact
from infra.cosmos.marker_documents import StoredNames
from infra.wire_names import WireNames

CONTACTS = WireNames(
    source="/contacts",
    untyped=Contact.aggregate_type,
    parked=StoredNames(Contact.aggregate_type, marker="parkedContact", owner="contactId"),
)
