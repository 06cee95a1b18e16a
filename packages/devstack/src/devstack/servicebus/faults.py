"""A fault happens only when it was asked for, as often as it was asked for, and never otherwise."""

from pydantic import BaseModel, ConfigDict, Field


class FaultOrder(BaseModel):
    """What to do wrong. Every field starts at "nothing"; an order replaces the one before it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    drop_after_store: int = Field(default=0, ge=0)
    """Store this many sends, then drop the connection instead of answering."""

    server_busy_seconds: float = Field(default=0.0, ge=0, le=3600)
    """Refuse sends with ``com.microsoft:server-busy`` for so long."""

    refuse_auth: int = Field(default=0, ge=0)
    """Refuse this many tokens with 401."""

    delay_seconds: float = Field(default=0.0, ge=0, le=60)
    """Answer sends and settlements so much later."""

    detach_links: str | None = None
    """Detach every link now, with this AMQP condition."""

    drop_connections: bool = False
    """Drop every connection now, without a word."""


class Faults:
    """The present order. Times are milliseconds since the epoch."""

    def __init__(self) -> None:
        self._drops = 0
        self._refusals = 0
        self._busy_until_ms = 0
        self.delay_seconds = 0.0

    def set(self, order: FaultOrder, now_ms: int) -> None:
        self._drops = order.drop_after_store
        self._refusals = order.refuse_auth
        self._busy_until_ms = now_ms + int(order.server_busy_seconds * 1000)
        self.delay_seconds = order.delay_seconds

    def is_busy(self, now_ms: int) -> bool:
        return now_ms < self._busy_until_ms

    def take_drop(self) -> bool:
        """Whether this answer is to be lost, with its connection."""
        if self._drops == 0:
            return False
        self._drops -= 1
        return True

    def take_refusal(self) -> bool:
        """Whether this token is to be refused."""
        if self._refusals == 0:
            return False
        self._refusals -= 1
        return True
