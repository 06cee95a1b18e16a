"""What tests ask of the contact service without HTTP: the same changes that its resource makes, through its outbox."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from application.directory import DirectoryEntry
from cosmos_outbox import Aggregates, Origin, Page, Receipt, Versioned
from cosmos_outbox.http import ChangeAnswer, KeyedRequest
from cosmos_outbox.inbox.healing import Healing
from cosmos_outbox.kernel.clock import new_id, utc_now
from cosmos_outbox.operations.subscriber import ReadModel, Subscriber
from cosmos_outbox.service import Wired
from domain.contact import Contact
from domain.values import ContactDetails
from infra.bootstrap import DIRECTORY, service
from infra.directory import CosmosDirectory

Revision = Callable[[ContactDetails], ContactDetails]
"""Makes a contact's new details from its present ones. After a lost race the revision is called again."""


@dataclass(frozen=True)
class Contacts:
    """The contact service. The object has no state: it serves any number of requests at once.

    Every call raises Throttled or Unavailable when the store could not answer.
    """

    aggregates: Aggregates
    clock: Callable[[], datetime]
    new_id: Callable[[], UUID]

    async def create(self, details: ContactDetails, origin: Origin) -> Receipt[Contact]:
        """Store a new contact with its ContactCreatedEvent."""
        contact = Contact.create(details, at=self.clock(), id=self.new_id())
        return await self.aggregates.create(contact, origin)

    async def create_once(
        self, details: ContactDetails, origin: Origin, request: KeyedRequest
    ) -> tuple[Receipt[Contact], bool]:
        """As :meth:`create`, but a repetition with the same key gets the first answer.

        Returns:
            The receipt, and whether the receipt is of an earlier request.

        Raises:
            IdempotencyKeyReused: the key was used before, with another body.
            AnswerErased: the contact was deleted, and the first answer with it.
        """

        at = self.clock()

        def make(contact_id: UUID) -> Contact:
            return Contact.create(details, at=at, id=contact_id)

        return await self.aggregates.create_once(make, request, origin)

    async def read(self, contact_id: UUID, origin: Origin, *, newest: bool = False) -> Versioned[Contact]:
        """The contact and its version; ``newest``: no older than this call. Raises AggregateNotFound."""
        return await self.aggregates.read(Contact, str(contact_id), origin, newest=newest)

    async def page(self, size: int, continuation_token: str | None, origin: Origin) -> Page[Contact]:
        """A page of contacts that are not deleted. Raises UnknownContinuation."""
        return await self.aggregates.page(Contact, size, continuation_token, origin)

    async def revise(
        self, contact_id: UUID, revision: Revision, origin: Origin, *, if_match: Collection[str] = ()
    ) -> Receipt[Contact]:
        """Give the contact the details that ``revision`` returns, and store the event of each changed property.

        An error that ``revision`` raises ends the call, and nothing is stored.

        Raises:
            AggregateNotFound: no contact has this id, or the contact was deleted.
            PreconditionFailed: the contact is at none of the versions in ``if_match``.
            ConcurrentChange: other writers won the race each time.
        """
        return await self._change(contact_id, self._revises(revision), origin, if_match)

    async def delete(
        self, contact_id: UUID, origin: Origin, *, if_match: Collection[str] = ()
    ) -> Receipt[Contact]:
        """Delete the contact for every reader. Raises as :meth:`revise` does."""
        return await self._change(
            contact_id, lambda contact: contact.delete(at=self.clock()), origin, if_match
        )

    async def revise_once(
        self,
        contact_id: UUID,
        revision: Revision,
        origin: Origin,
        request: KeyedRequest,
        *,
        if_match: Collection[str] = (),
    ) -> ChangeAnswer[Contact]:
        """As :meth:`revise`, but a repetition with the same key gets the first answer.

        Raises IdempotencyKeyReused: the key was used before for this contact, with another request; RefusedBefore.
        """
        return await self._change_once(contact_id, self._revises(revision), origin, request, if_match)

    async def delete_once(
        self, contact_id: UUID, origin: Origin, request: KeyedRequest, *, if_match: Collection[str] = ()
    ) -> ChangeAnswer[Contact]:
        """As :meth:`delete`, but a repetition with the same key gets the first answer. Raises as revise_once does."""
        return await self._change_once(
            contact_id, lambda contact: contact.delete(at=self.clock()), origin, request, if_match
        )

    def _revises(self, revision: Revision) -> Callable[[Contact], None]:
        return lambda contact: contact.revise(revision(contact.details), at=self.clock())

    async def _change_once(
        self,
        contact_id: UUID,
        change: Callable[[Contact], None],
        origin: Origin,
        request: KeyedRequest,
        if_match: Collection[str],
    ) -> ChangeAnswer[Contact]:
        return await self.aggregates.change_once(
            Contact, str(contact_id), change, request, origin, if_match=if_match
        )

    async def _change(
        self, contact_id: UUID, change: Callable[[Contact], None], origin: Origin, if_match: Collection[str]
    ) -> Receipt[Contact]:
        return await self.aggregates.change(Contact, str(contact_id), change, origin, if_match=if_match)


def wire(environment: Mapping[str, str]) -> Wired:
    """The contact service in one process."""
    return service.wire(environment)


def contacts_of(wired: Wired) -> Contacts:
    """The contacts of a service that is wired."""
    return Contacts(wired.aggregates, utc_now, new_id)


def read_model_of(wired: Wired) -> ReadModel[DirectoryEntry]:
    """What keeps its directory."""
    return wired.read_model(DIRECTORY)


def directory_of(wired: Wired) -> CosmosDirectory:
    """The search."""
    return CosmosDirectory(read_model_of(wired).listing)


def subscriber_of(wired: Wired) -> Subscriber:
    """What receives the events."""
    return wired.subscriptions[DIRECTORY.name].subscriber


def healing_of(wired: Wired) -> Healing[DirectoryEntry]:
    """What finds the changes of which no event came."""
    found = read_model_of(wired).healing
    assert found is not None, "the contacts are its source"
    return found
