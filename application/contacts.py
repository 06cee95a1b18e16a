"""The use cases: load a contact, let it act, commit. A lost race is run again from what the winner left behind.

Never last-write-wins: each attempt reads the newest version, applies the request to it and is stored only if that
version is still the newest. A caller who pins a version with If-Match gets no second attempt.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from application.merge_patch import merge_patch
from application.ports import Clock, ETag, Origin, Page, Receipt, UnitOfWorkFactory, Versioned
from application.validation import validated
from domain.contact import Contact
from domain.errors import ConcurrentChange, PreconditionFailed
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


def _logged(receipt: Receipt) -> Receipt:
    if receipt.events:
        contact = receipt.contact
        what = "deleted" if contact.deleted else "changed" if contact.modified_at else "created"
        _log.info(
            "%s contact %s, sequence %d, %d event(s)", what, contact.id, contact.last_sequence, receipt.events
        )
    return receipt
