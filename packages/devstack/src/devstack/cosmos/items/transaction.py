"""The operations on items of one partition key, inside one SQLite transaction: a batch's or a single write's.

All writes of a transaction carry one LSN, which is there before the first of them. An operation that fails raises, and
the caller rolls everything back.
"""

from dataclasses import dataclass, replace

from devstack.cosmos.items.patch import Patch
from devstack.cosmos.protocol.errors import bad_request, conflict, no_such_resource, precondition_failed
from devstack.cosmos.protocol.json_text import Json
from devstack.cosmos.storage import ttl
from devstack.cosmos.storage.documents import NewItem, StoredItem, check_item, find
from devstack.cosmos.storage.epk import Components
from devstack.cosmos.storage.etag import matches, new_etag
from devstack.cosmos.storage.model import Container
from devstack.cosmos.storage.partition_key import mismatch, stored_form
from devstack.cosmos.storage.session import advance_lsn, current_lsn
from devstack.cosmos.storage.store import Store
from devstack.cosmos.wire import charge


@dataclass(frozen=True)
class Condition:
    """``If-Match`` and ``If-None-Match``."""

    if_match: str | None = None
    if_none_match: str | None = None


@dataclass(frozen=True)
class Outcome:
    """What one operation did. ``item`` is None after a delete, and when a read found nothing newer (304)."""

    status: int
    item: StoredItem | None
    charge: float


class ItemTransaction:
    """Open for one partition key. ``now`` is the whole second in which it happens."""

    def __init__(self, store: Store, container: Container, components: Components, now: int) -> None:
        self._run = store.connection
        self._chance = store.chance
        self._container = container
        self._components = components
        self._now = now
        self._epk = container.key.effective(components)
        self._key = stored_form(components)
        self.part = container.range_of(self._epk)
        self._own_lsn: int | None = None

    @property
    def lsn(self) -> int:
        """This transaction's own once it has written, the partition's last before."""
        return self._own_lsn or current_lsn(self._run, self._container, self.part)

    def _write_lsn(self) -> int:
        if self._own_lsn is None:
            self._own_lsn = advance_lsn(self._run, self._container, self.part)
        return self._own_lsn

    def read(self, item_id: str, condition: Condition) -> Outcome:
        item = self._existing(item_id)
        if condition.if_none_match is not None and matches(condition.if_none_match, item.etag):
            return Outcome(304, None, 1.0)
        return Outcome(200, item, charge.of_read(len(item.text)))

    def create(self, document: Json, condition: Condition) -> Outcome:
        new = self._checked(document)
        if self._find(new.id) is not None:
            raise conflict()
        if condition.if_match is not None:
            raise precondition_failed()
        return self._insert(new)

    def upsert(self, document: Json, condition: Condition) -> Outcome:
        new = self._checked(document)
        old = self._find(new.id)
        _check(condition, old)
        return self._insert(new) if old is None else self._overwrite(old, new)

    def replace(self, item_id: str, document: Json, condition: Condition) -> Outcome:
        """The body may give the item another id, which must be free."""
        new = self._checked(document)
        old = self._existing(item_id)
        _check(condition, old)
        if new.id != old.id:
            if self._find(new.id) is not None:
                raise conflict()
            self._remove_expired(new.id)
        return self._overwrite(old, new)

    def patch(self, item_id: str, patch: Patch, condition: Condition) -> Outcome:
        old = self._existing(item_id)
        _check(condition, old)
        new = self._checked(patch.applied_to(self._container, old))
        if new.id != item_id:
            raise bad_request("The id of an item cannot be patched.")
        return self._overwrite(old, new)

    def delete(self, item_id: str, condition: Condition) -> Outcome:
        old = self._existing(item_id)
        _check(condition, old)
        self._write_lsn()
        self._run.execute(f"DELETE FROM {self._container.items} WHERE number = ?", (old.number,))
        return Outcome(204, None, charge.of_write(old.text))

    def delete_all(self) -> None:
        """Delete every item of the partition key."""
        self._write_lsn()
        self._run.execute(f"DELETE FROM {self._container.items} WHERE pk = ?", (self._key,))

    def _checked(self, document: Json) -> NewItem:
        new = check_item(self._container, document)
        if stored_form(new.components) != self._key:
            raise mismatch()
        return new

    def _find(self, item_id: str) -> StoredItem | None:
        return find(self._run, self._container, self._key, item_id, self._now)

    def _existing(self, item_id: str) -> StoredItem:
        item = self._find(item_id)
        if item is None:
            raise no_such_resource()
        return item

    def _insert(self, new: NewItem) -> Outcome:
        item = self._stamped(0, new)
        self._remove_expired(new.id)
        number = self._run.execute(
            f"INSERT INTO {self._container.items}"
            " (range, epk, pk, id, lsn, shuffle, timestamp, etag, ttl, expires, body)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                item.range,
                self._epk,
                self._key,
                item.id,
                item.lsn,
                self._any_order(),
                item.timestamp,
                item.etag,
                new.ttl,
                item.expires,
                item.text,
            ),
        ).lastrowid
        assert number is not None
        return Outcome(201, replace(item, number=number), charge.of_write(new.text))

    def _remove_expired(self, item_id: str) -> None:
        """The row of an item that has expired: for the client it is no longer there."""
        self._write_lsn()
        self._run.execute(
            f"DELETE FROM {self._container.items} WHERE pk = ? AND id = ?", (self._key, item_id)
        )

    def _overwrite(self, old: StoredItem, new: NewItem) -> Outcome:
        item = self._stamped(old.number, new)
        self._run.execute(
            f"UPDATE {self._container.items} SET id = ?, lsn = ?, shuffle = ?, timestamp = ?, etag = ?, ttl = ?,"
            " expires = ?, body = ? WHERE number = ?",
            (
                item.id,
                item.lsn,
                self._any_order(),
                item.timestamp,
                item.etag,
                new.ttl,
                item.expires,
                item.text,
                item.number,
            ),
        )
        return Outcome(200, item, charge.of_write(old.text) + charge.of_write(new.text))

    def _any_order(self) -> int:
        """The service promises no order within a transaction; nobody shall come to rely on one."""
        return self._chance.getrandbits(31)

    def _stamped(self, number: int, new: NewItem) -> StoredItem:
        expires = ttl.last_second(self._container.default_ttl, new.ttl, self._now)
        return StoredItem(
            number,
            self.part.id,
            new.id,
            self._write_lsn(),
            self._now,
            new_etag(self._chance),
            expires,
            new.text,
        )


def _check(condition: Condition, item: StoredItem | None) -> None:
    """Raises 412."""
    if condition.if_match is not None and (item is None or not matches(condition.if_match, item.etag)):
        raise precondition_failed()
    if (
        condition.if_none_match is not None
        and item is not None
        and matches(condition.if_none_match, item.etag)
    ):
        raise precondition_failed()
