"""The use cases: load a contact, let it act, commit. A lost race is run again from what the winner left behind.

Never last-write-wins: each attempt reads the newest version, applies the request to it and is stored only if that
version is still the newest. A caller who pins a version with If-Match gets no second attempt.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from application.idempotency import GENERATIONS, digest, id_from_key
from application.merge_patch import merge_patch
from application.ports import (
    Clock,
    ETag,
    Origin,
    Page,
    Receipt,
    RequestRecord,
    UnitOfWork,
    UnitOfWorkFactory,
    Versioned,
)
from application.validation import validated
from domain.contact import Contact
from domain.errors import (
    ConcurrentChange,
    ContactNotFound,
    IdempotencyKeyReused,
    PreconditionFailed,
    RequestInProgress,
)
from domain.values import ContactDetails

ATTEMPTS = 4
"""How often a change is applied before losing the race is the caller's answer."""

_log = logging.getLogger("contacts")

Change = Callable[[Contact], None]


@dataclass(frozen=True)
class Contacts:
    """The contact service. It holds no state of its own: one object may serve any number of requests at once."""

    open_unit_of_work: UnitOfWorkFactory
    clock: Clock

    async def create(self, details: ContactDetails, origin: Origin) -> Receipt:
        """Store a new contact with its ContactCreatedEvent."""
        async with self.open_unit_of_work(origin) as work:
            work.contacts.add(Contact.create(details, at=self.clock()))
            return _logged(await work.commit())

    async def create_once(self, details: ContactDetails, origin: Origin, key: str) -> tuple[Receipt, bool]:
        """As :meth:`create`, but a request that comes again with the same key gets the first one's answer.

        The record of the request is stored in the contact's own transaction, so both are there or neither; to be
        found again, the contact's id follows from the key. Once the record has expired, the key starts anew.

        Returns:
            The receipt, and whether it is of an earlier request.

        Raises:
            IdempotencyKeyReused: the key came before, with another body.
            RequestInProgress: the same request was answered while this one was under way.
        """
        key_digest, fingerprint = digest(key), digest(details.model_dump_json(by_alias=True))
        async with self.open_unit_of_work(origin) as work:
            for generation in range(GENERATIONS):
                contact = Contact.create(details, at=self.clock(), contact_id=id_from_key(key, generation))
                if record := await work.requests.get(contact.id, key_digest):
                    return await _replayed(work, _same_request(record, fingerprint)), True
                work.contacts.add(contact)
                work.requests.add(RequestRecord(key_digest, fingerprint, contact.state))
                try:
                    return _logged(await work.commit()), False
                except PreconditionFailed:
                    if record := await work.requests.get(contact.id, key_digest):
                        _same_request(record, fingerprint)
                        raise RequestInProgress("the same request was just answered: send it again") from None
        raise IdempotencyKeyReused("the key was used too often: take a new one for a new request")

    async def read(self, contact_id: UUID, origin: Origin) -> Versioned:
        """The contact and its version. Raises ContactNotFound."""
        async with self.open_unit_of_work(origin) as work:
            contact, etag = await work.contacts.get(contact_id)
            return Versioned(contact.state, etag)

    async def page(self, size: int, continuation_token: str | None, origin: Origin) -> Page:
        """Some contacts that are not deleted, and where the next ones start."""
        async with self.open_unit_of_work(origin) as work:
            return await work.contacts.page(size, continuation_token)

    async def patch(
        self, contact_id: UUID, patch: dict[str, Any], origin: Origin, *, if_match: Collection[ETag] = ()
    ) -> Receipt:
        """Apply a JSON Merge Patch (RFC 7396); every changed property raises its event, all in one transaction.

        Raises:
            InvalidRequest: the patched contact would break a rule.
            ContactNotFound: there is none, or it was deleted.
            PreconditionFailed: the contact is at none of the versions in ``if_match``.
            ConcurrentChange: others won the race each time.
        """

        def revise(contact: Contact) -> None:
            current = contact.details.model_dump(mode="json", by_alias=True, exclude_none=True)
            contact.revise(validated(ContactDetails, merge_patch(current, patch)), at=self.clock())

        return await self._change(contact_id, revise, origin, if_match)

    async def delete(self, contact_id: UUID, origin: Origin, *, if_match: Collection[ETag] = ()) -> Receipt:
        """Delete the contact for every reader. Raises as :meth:`patch` does."""
        return await self._change(
            contact_id, lambda contact: contact.delete(at=self.clock()), origin, if_match
        )

    async def _change(
        self, contact_id: UUID, change: Change, origin: Origin, if_match: Collection[ETag]
    ) -> Receipt:
        async with self.open_unit_of_work(origin) as work:
            for _ in range(ATTEMPTS):
                contact, etag = await work.contacts.get(contact_id)
                if if_match and etag not in if_match:
                    raise PreconditionFailed(
                        f"contact {contact_id} has changed: read it again and use its new ETag"
                    )
                change(contact)
                try:
                    return _logged(await work.commit())
                except PreconditionFailed:
                    if if_match:
                        raise
        raise ConcurrentChange(f"contact {contact_id} is being changed by others all the time: try again")


async def _replayed(work: UnitOfWork, record: RequestRecord) -> Receipt:
    """The first answer again, with its ETag if the contact is still at that version."""
    try:
        contact, etag = await work.contacts.get(record.contact.id)
    except ContactNotFound:
        return Receipt(record.contact, None)
    return Receipt(
        record.contact, etag if contact.state.last_sequence == record.contact.last_sequence else None
    )


def _same_request(record: RequestRecord, fingerprint: str) -> RequestRecord:
    if record.fingerprint != fingerprint:
        raise IdempotencyKeyReused("the Idempotency-Key came before with another body: take a new key")
    return record


def _logged(receipt: Receipt) -> Receipt:
    if receipt.events:
        contact = receipt.contact
        what = "deleted" if contact.deleted else "changed" if contact.modified_at else "created"
        _log.info(
            "%s contact %s, sequence %d, %d event(s)", what, contact.id, contact.last_sequence, receipt.events
        )
    return receipt
