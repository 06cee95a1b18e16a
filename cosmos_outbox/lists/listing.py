"""Lists entries in pages, by the last key of the page before; tokens are encrypted, since they contain sort keys.

An entry of another form is shown as far as it can be read, until it is written again; an unreadable one is left out,
and the number is logged. An entry whose key changes between two pages may be listed twice or not at all.

The key of the tokens is kept beside the entries, created by the first process that needs one. So every process can
decrypt the tokens of the others, and there is no secret to set, pass on or lose. Any reader of the key can read the
entries too.
"""

import base64
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from pydantic import BaseModel

from cosmos_outbox.inbox.entry import DESCENDING, Condition, EntrySchema, Listed, ListedPage, time_or_none
from cosmos_outbox.kernel.clock import secret
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.kernel.loops import LogThrottle
from cosmos_outbox.lists import continuation

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE_BYTES = 12
_KEY_BYTES = 32


def new_key() -> str:
    """Returns a new key in the form that a store keeps."""
    return base64.b64encode(secret(_KEY_BYTES)).decode()


@dataclass
class TokenKey:
    """The key of one store's lists, read once."""

    kept: Callable[[], Awaitable[str]]
    """Returns the key that the store keeps: the first of :func:`new_key` that any process stored."""
    _cipher: "AESGCM | None" = field(default=None, init=False, repr=False)

    async def close(self, scope: str, position: str) -> str:
        """Returns a position in the list that ``scope`` names, encrypted for clients. Raises the store's errors."""
        nonce = secret(_NONCE_BYTES)
        closed = (await self._key()).encrypt(nonce, position.encode(), scope.encode())
        return base64.urlsafe_b64encode(nonce + closed).decode().rstrip("=")

    async def open(self, scope: str, token: str) -> str:
        """Returns the position. Raises UnknownContinuation if :meth:`close` did not make it, and the store's errors."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415

        key, both = await self._key(), continuation.decoded(token)
        try:
            return key.decrypt(both[:_NONCE_BYTES], both[_NONCE_BYTES:], scope.encode()).decode()
        except (InvalidTag, ValueError):
            raise continuation.unusable() from None

    async def _key(self) -> "AESGCM":
        if self._cipher is None:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - an app that only declares lists needs none

            self._cipher = AESGCM(base64.b64decode(await self.kept()))
        return self._cipher


S = TypeVar("S", bound=BaseModel)

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sorted:
    """A sort order, by a text and then by the id; an entry without the text is not listed."""

    text: str
    down: bool
    """Whether the order is descending."""

    @classmethod
    def of(cls, order: str) -> "Sorted":
        """Returns the order; ``order`` is one of ``EntrySchema.orders``."""
        return cls(order.removeprefix(DESCENDING), order.startswith(DESCENDING))


class Items(Protocol):
    """Reads the living entries of one read model from a store."""

    async def first(
        self, conditions: Sequence[Sequence[Condition]], by: Sorted, most: int, after: Sequence[str] | None
    ) -> Sequence[Mapping[str, Any]]:
        """Returns the first entries after the one with this text and id; fewer than ``most``: there are no more.

        Each has ``id``, ``search``, ``form``, ``data``, ``lastSequence``, ``appliedAt``, ``lateSeconds`` and
        ``blockedSince``. Raises the store's errors.
        """


@dataclass(frozen=True)
class Listing(Generic[S]):
    """Lists the living entries of one read model: ``service().read_model(declared).listing``."""

    items: Items
    form: EntrySchema[S]
    scope: str
    """The name of the read model in tokens."""
    key: TokenKey
    _unreadable: LogThrottle = field(default_factory=LogThrottle, repr=False)

    async def page(
        self, conditions: Sequence[Sequence[Condition]], sort: str, size: int, token: str | None
    ) -> ListedPage[S]:
        """Returns at most ``size`` entries, ordered by ``sort`` and id. One condition of each group must hold.

        ``sort``: one of ``EntrySchema.orders``. ``token``: of the page before; None: the first page. Names of texts
        come from the code, never from a caller.

        Raises:
            UnknownContinuation: the token is not of this list.
            Throttled, Unavailable, Misconfigured: a container could not answer.
            StoreUnavailable: a file could not be read.
        """
        scope, by = f"{self.scope}/{sort}/{conditions}", Sorted.of(sort)
        after = json.loads(await self.key.open(scope, token)) if token else None
        found = await self.items.first(conditions, by, size + 1, after)
        shown = found[:size]
        listed = [each for item in shown if (each := self._listed(item)) is not None]
        self._log_left_out(len(shown) - len(listed), len(shown))
        if len(found) == len(shown):
            return ListedPage(listed, None)
        last = [shown[-1]["search"][by.text], shown[-1]["id"]]
        return ListedPage(listed, await self.key.close(scope, json.dumps(last)))

    def _log_left_out(self, left_out: int, of: int) -> None:
        if left_out and self._unreadable.due():
            _log.error(
                "%d of %d entries are left out of a list: they were made in another form and cannot be read. The walk "
                "writes them again; to do so at once, run cosmos-outbox rebuild. Where there is no source, ask the "
                "publisher to publish their events again",
                left_out,
                of,
            )

    def _listed(self, item: Mapping[str, Any]) -> Listed[S] | None:
        state = self.form.read(item)
        if state is None:
            return None
        return Listed(
            id=item["id"],
            state=state,
            sequence=item["lastSequence"],
            applied_at=datetime.fromisoformat(item["appliedAt"]),
            late_seconds=item["lateSeconds"],
            blocked_since=time_or_none(item["blockedSince"]),
        )
