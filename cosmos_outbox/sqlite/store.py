"""Declares a file as a subscriber's store. See :class:`cosmos_outbox.wiring.subscribing.StoreOf`."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from cosmos_outbox.inbox.form import EntryForm
from cosmos_outbox.lists.listing import EntryListing
from cosmos_outbox.lists.token_key import TokenKey
from cosmos_outbox.settings.names import Named
from cosmos_outbox.sqlite.database import Database
from cosmos_outbox.sqlite.effects import SqliteEffects
from cosmos_outbox.sqlite.entries import SqliteEntries
from cosmos_outbox.sqlite.listing import SqliteItems, token_key
from cosmos_outbox.sqlite.set_aside import SqliteSetAside

S = TypeVar("S", bound=BaseModel)


@dataclass(frozen=True)
class SqliteFile:
    """Declares a SQLite file as a subscriber's store: ``SqliteFile(Named("MAILING_DATABASE", "mailing.db"))``.

    It has to be on a disk that lasts. Processes on one machine may share it.
    """

    path: Named
    """The setting with the path, and the path where nobody sets it; made when it is first used."""

    def open(self, environment: Mapping[str, str], resources: AsyncExitStack) -> "SqliteStore":
        """The store. Opens no file. Raises Misconfigured."""
        database = Database(Path(self.path.resolve(environment)))
        resources.push_async_callback(database.close)
        return SqliteStore(database, token_key(database))


@dataclass(frozen=True)
class SqliteStore:
    """See :class:`cosmos_outbox.wiring.subscribing.Store`."""

    database: Database
    key: TokenKey

    def entries(self, name: str, form: EntryForm[S], deleted_ttl_seconds: int | None) -> SqliteEntries[S]:
        """Of one read model."""
        return SqliteEntries(self.database, name, form, deleted_ttl_seconds)

    def listing(self, name: str, form: EntryForm[S]) -> EntryListing[S]:
        """Of one read model."""
        return EntryListing(SqliteItems(self.database, name), form, name, self.key)

    def set_aside(self, subscription: str, closed_ttl_seconds: int) -> SqliteSetAside:
        """Of one subscription."""
        return SqliteSetAside(self.database, subscription, closed_ttl_seconds)

    def effects(self, name: str, subscription: str, ttl_seconds: int) -> SqliteEffects:
        """Of one subscriber with effects."""
        return SqliteEffects(self.database, subscription, ttl_seconds)

    async def check(self) -> None:
        """Returns if the file can be used. Raises StoreAway."""
        await self.database.check()
