"""The parts of a subscriber's own store: the ports that an adapter implements, and the values that they exchange.

An adapter implements ``StoreOf``, ``Store``, ``Entries``, ``SetAside`` and ``EffectRecords``; ``Listing`` pages
over what finds its entries in order. ``entry_document`` and ``record_document`` give what is kept as JSON. An error of
the store is raised as :class:`cosmos_outbox.errors.StoreUnavailable`. ``examples/subscriber/sqlite_store.py`` is one;
``cosmos_outbox.testing.SubscriberStoreContract`` tests any.
"""

from cosmos_outbox.composition.declarations import Store, StoreOf
from cosmos_outbox.inbox.effect import EffectRecord, EffectRecords, EffectState
from cosmos_outbox.inbox.entry import Entry, Stamp, VersionedEntry, WalkPage, entry_document, entry_of
from cosmos_outbox.inbox.errors import EntryChanged, NotSetAside, RecordChanged
from cosmos_outbox.inbox.ports import Entries
from cosmos_outbox.inbox.set_aside import (
    Record,
    RecordPage,
    RecordState,
    SetAside,
    record_document,
    record_of,
)
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.lists.continuation import seal, unseal
from cosmos_outbox.lists.listing import Listing, Sorted, TokenKey, new_key

__all__ = [
    "AggregateKey",
    "EffectRecord",
    "EffectRecords",
    "EffectState",
    "Entries",
    "Entry",
    "EntryChanged",
    "Listing",
    "NotSetAside",
    "Record",
    "RecordChanged",
    "RecordPage",
    "RecordState",
    "SetAside",
    "Sorted",
    "Stamp",
    "Store",
    "StoreOf",
    "TokenKey",
    "VersionedEntry",
    "WalkPage",
    "entry_document",
    "entry_of",
    "new_key",
    "record_document",
    "record_of",
    "seal",
    "unseal",
]
