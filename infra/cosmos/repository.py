"""Contacts out of the store. What is read to be changed is tracked by the unit of work that asked."""

from uuid import UUID

from application.ports import ETag, Page, RequestRecord
from domain.contact import Contact
from domain.errors import ContactNotFound
from infra.cosmos import continuation
from infra.cosmos.container import Container, StoreError
from infra.cosmos.errors import Kind
from infra.documents import CONTACT_TYPE, contact_from_item, request_from_item, request_id

_LIST = "SELECT * FROM c WHERE c.type = @type AND c.data.deleted = false"
_EMPTY_PAGES = 5


class Tracked:
    """An aggregate in a unit of work, and the version it was read at (None: it is new)."""

    def __init__(self, contact: Contact, etag: ETag | None) -> None:
        self.contact = contact
        self.etag = etag


class CosmosContactRepository:
    """The contacts of one unit of work."""

    def __init__(self, container: Container, scope: str, tracked: list[Tracked]) -> None:
        self._container = container
        self._scope = scope
        self._tracked = tracked

    def add(self, contact: Contact) -> None:
        """Track a new contact."""
        self._tracked.append(Tracked(contact, None))

    async def get(self, contact_id: UUID) -> tuple[Contact, ETag]:
        """The contact and its version; tracked. Raises ContactNotFound, Throttled, Unavailable."""
        try:
            item = await self._container.read(str(contact_id), str(contact_id))
        except StoreError as error:
            raise error.failure.error() from error
        if item is None or item.get("type") != CONTACT_TYPE:
            raise ContactNotFound(f"there is no contact {contact_id}")
        stored = contact_from_item(item)
        if stored.contact.deleted:
            raise ContactNotFound(f"there is no contact {contact_id}")
        contact = Contact.load(stored.contact)
        self._tracked.append(Tracked(contact, stored.etag))
        return contact, stored.etag

    async def page(self, size: int, continuation_token: str | None) -> Page:
        """At most ``size`` contacts. Raises InvalidRequest for a foreign token, Throttled, Unavailable."""
        token = continuation.unseal(self._scope, continuation_token) if continuation_token else None
        for _ in range(_EMPTY_PAGES):  # the store may answer an empty page and a token: go on for the caller
            try:
                items, token = await self._container.page(_LIST, {"@type": CONTACT_TYPE}, size, token)
            except StoreError as error:
                if continuation_token and error.failure.kind is Kind.INVALID:
                    raise continuation.unusable() from error
                raise error.failure.error() from error
            if items or token is None:
                break
        contacts = [contact_from_item(item).contact for item in items]
        return Page(contacts, continuation.seal(self._scope, token) if token else None)


class CosmosRequestRecords:
    """The records of requests, each in the partition of the contact that it created."""

    def __init__(self, container: Container, tracked: list[RequestRecord]) -> None:
        self._container = container
        self._tracked = tracked

    def add(self, record: RequestRecord) -> None:
        """Store the record in the transaction of the commit."""
        self._tracked.append(record)

    async def get(self, contact_id: UUID, key_digest: str) -> RequestRecord | None:
        """The record, unless there is none or it has expired. Raises Throttled, Unavailable."""
        try:
            item = await self._container.read(request_id(key_digest), str(contact_id))
        except StoreError as error:
            raise error.failure.error() from error
        return None if item is None else request_from_item(item)
