"""A connection uses an entity only while a token put on it covers the entity."""

from collections.abc import Callable

from devstack.servicebus.amqp.cbs import Grant
from devstack.servicebus.codec.errors import UNAUTHORIZED, AmqpError

_FOR_EVER_MS = 1 << 62


class Access:
    """What the tokens of one connection allow. Times are in milliseconds since the epoch."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._grants: list[Grant] = []

    def check(self, path: str) -> None:
        """Raises :class:`AmqpError` unless a token covers the path."""
        now = self._now()
        if not any(grant.covers(path, now) for grant in self._grants):
            raise AmqpError(
                UNAUTHORIZED, f"Unauthorized access. A token with a claim for '{path}' is required."
            )

    def allow_all(self) -> None:
        """The client has proved that it knows the key: it needs no token."""
        self._grants.append(Grant("", _FOR_EVER_MS))

    def add(self, grant: Grant) -> None:
        """A token was put, in the place of one for the same path."""
        now = self._now()
        self._grants = [held for held in self._grants if held.path != grant.path and held.expires_ms > now]
        self._grants.append(grant)

    def next_end_ms(self) -> int | None:
        """When a token ends next; None: none does."""
        now = self._now()
        ends = (grant.expires_ms for grant in self._grants if now < grant.expires_ms < _FOR_EVER_MS)
        return min(ends, default=None)
