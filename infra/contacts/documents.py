"""What contacts' documents and messages are called.

Events and parked documents that were stored before an event named its aggregate are a contact's, and stay readable.
"""

from domain.contact import Contact
from infra.cosmos.parked_documents import StoredNames
from infra.wire_names import WireNames

CONTACTS = WireNames(
    source="/contacts",
    untyped=Contact.aggregate_type,
    parked=StoredNames(Contact.aggregate_type, marker="parkedContact", owner="contactId"),
)
