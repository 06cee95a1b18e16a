"""Lists aggregates in pages, each from the last key of the page before; an index serves each of its orders.

The list reaches over all partitions. The query for a page sorts by the type too, which is the same for all of them: so
the composite index gives each physical partition's part of the page without a look at events or other aggregates.
Nothing of a request is in a query's text, only in its parameters.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from cosmos_outbox.cosmos.store.container import beyond, order_by
from cosmos_outbox.cosmos.store.partition_key import LARGEST_INTEGER, is_text
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.lists import continuation
from cosmos_outbox.outbox.aggregate import Aggregate
from cosmos_outbox.outbox.selection import CREATED_AT, Order, Selection, orders

_WRITTEN = "_ts"
_LIVING = "c.type = @type AND (NOT IS_DEFINED(c.data.deleted) OR c.data.deleted = false)"


def indexed(kind: type[Aggregate[Any]]) -> Iterator[str]:
    """Returns the paths of filters, besides ``id`` and ``_ts``, which are always indexed."""
    names = [CREATED_AT] if Order.CREATED in orders(kind) else []
    yield from (f"/data/{_alias(kind, name)}" for name in (*names, *kind.found_by))


def composite(kind: type[Aggregate[Any]]) -> Iterator[tuple[str, ...]]:
    """The composite index of each order, ascending, which serves the other direction too."""
    for order in orders(kind):
        if not order.is_descending:
            yield ("/type", f"/{_path(kind, order).replace('.', '/')}", "/id")


@dataclass(frozen=True)
class ListQuery:
    """The query for one page."""

    kind: type[Aggregate[Any]]
    selection: Selection
    token: str | None
    """The token of the page before, decrypted; None: the first page."""

    @property
    def scope(self) -> str:
        """The list that the token is for."""
        chosen = self.selection
        return json.dumps(
            [
                self.kind.aggregate_type,
                self._order,
                sorted(chosen.equal.items()),
                None if chosen.ids is None else sorted(chosen.ids),
                chosen.changed_since and chosen.changed_since.timestamp(),
            ]
        )

    def text(self, most: int) -> str:
        """The query."""
        path, chosen = f"c.{_path(self.kind, self._order)}", self.selection
        where = [_LIVING, *(f"c.data.{_alias(self.kind, name)} = @is_{name}" for name in chosen.equal)]
        if chosen.ids is not None:
            where.append(f"c.id IN ({', '.join(f'@id{number}' for number in range(len(chosen.ids)))})")
        if chosen.changed_since is not None:
            where.append(f"c.{_WRITTEN} >= @since")
        down = self._order.is_descending
        if self.token is not None:
            where.append(beyond(path, down=down))
        by = order_by("c.type", path, "c.id", down=down)
        return f"SELECT TOP {most} * FROM c WHERE {' AND '.join(where)} {by}"  # noqa: S608

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The query's parameters, which the request decides. Raises UnknownContinuation: the token is none."""
        chosen = self.selection
        given = {
            "@type": self.kind.aggregate_type,
            **{f"@is_{name}": value for name, value in chosen.equal.items()},
        }
        given |= {f"@id{number}": each for number, each in enumerate(chosen.ids or ())}
        if chosen.changed_since is not None:
            given["@since"] = int(chosen.changed_since.timestamp())
        if (after := self._after()) is not None:
            given |= {"@key": after[0], "@after": after[1]}
        return given

    def position(self, item: Mapping[str, Any]) -> str:
        """Returns the token, not yet encrypted, of the page after this item."""
        return json.dumps([self._key(item), item["id"]])

    @property
    def _order(self) -> Order:
        return self.selection.order or orders(self.kind)[0]

    def _key(self, item: Mapping[str, Any]) -> Any:
        found: Any = item
        for name in _path(self.kind, self._order).split("."):
            found = found[name]
        return found

    def _after(self) -> tuple[Any, str] | None:
        """Checks the token's content. Raises UnknownContinuation: a caller that knows the list's name can forge one."""
        if self.token is None:
            return None
        try:
            found = json.loads(self.token)
        except (ValueError, RecursionError):
            raise continuation.unusable() from None
        if not isinstance(found, list) or len(found) != 2:
            raise continuation.unusable()
        key, item_id = found
        is_key = _is_seconds(key) if self._order.by_change else _is_short(key)
        if not (is_key and _is_short(item_id)):
            raise continuation.unusable()
        return key, item_id


def _path(kind: type[Aggregate[Any]], order: Order) -> str:
    return _WRITTEN if order.by_change else f"data.{_alias(kind, CREATED_AT)}"


def _alias(kind: type[Aggregate[Any]], name: str) -> str:
    return kind.state_type.model_fields[name].serialization_alias or name


def _is_seconds(value: Any) -> bool:
    return type(value) is int and 0 <= value <= LARGEST_INTEGER


def _is_short(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= 255 and is_text(value)
