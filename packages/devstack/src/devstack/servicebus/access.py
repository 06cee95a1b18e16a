"""A connection uses an entity only while a token put on it covers the entity; its links end with the last such one."""

from collections.abc import Callable, Iterator

from devstack.servicebus.cbs import Grant
from devstack.servicebus.codec.errors import UNAUTHORIZED, AmqpError
from devstack.servicebus.session import Link
from devstack.servicebus.timers import Timers

LONGEST_DELAY_SECONDS = 86_400.0
"""A timer of the event loop; a token that is valid for longer is not looked at again, since no test runs for a day."""


class Access:
    """What the tokens of one connection allow. ``now`` is in milliseconds since the epoch."""

    def __init__(self, now: Callable[[], int], timers: Timers, links: Callable[[], Iterator[Link]]) -> None:
        self._now = now
        self._timers = timers
        self._links = links
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
        self._grants.append(Grant("", 1 << 62))

    def add(self, grant: Grant) -> None:
        """A token was put; links whose last token ends are detached then."""
        now = self._now()
        self._grants = [held for held in self._grants if held.path != grant.path and held.expires_ms > now]
        self._grants.append(grant)
        seconds = (grant.expires_ms - now) / 1000 + 0.01
        self._timers.later(min(seconds, LONGEST_DELAY_SECONDS), self._detach_unauthorised)

    def _detach_unauthorised(self) -> None:
        for link in self._links():
            try:
                self.check(link.path)
            except AmqpError as error:
                expired = AmqpError(error.condition, "ExpiredToken: the link's token has expired.")
                link.session.detach(link, expired)
