"""A session has at most one holder, and only its holder takes its messages; they come in sequence order.

Source: the documentation of message sessions in Azure Service Bus; also of which ends of a hold raise a delivery count:
a lock that expired does, a session that its holder closed does not.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from devstack.servicebus.broker.deadlines import Deadlines
from devstack.servicebus.broker.journal import Journal
from devstack.servicebus.broker.ready import Ready
from devstack.servicebus.codec.errors import SESSION_CANNOT_BE_LOCKED, SESSION_LOCK_LOST, AmqpError


@dataclass(eq=False, slots=True)
class SessionLock:
    """The hold on one session. ``lost`` is called when it ends without its holder having asked for that."""

    session: "Session"
    until_ms: int
    lost: Callable[[], None]
    tokens: set[bytes] = field(default_factory=set)
    """The lock tokens of the messages that the holder has taken and not settled."""

    @property
    def held(self) -> bool:
        return self.session.lock is self


@dataclass(eq=False, slots=True)
class Session:
    id: str
    ready: Ready
    lock: SessionLock | None = None
    messages: int = 0
    """Stored messages of any state."""

    state: bytes | None = None
    state_updated_ms: int = 0


class Sessions:
    """The sessions of one queue: those with messages, with a state, or locked."""

    def __init__(self, entity: int, journal: Journal, is_ready: Callable[[int], bool]) -> None:
        self._entity = entity
        self._journal = journal
        self._is_ready = is_ready
        self._sessions: dict[str, Session] = {}
        self._free: dict[str, None] = {}
        """Ids that may have ready messages and no holder, the longest waiting first."""

        self.deadlines: Deadlines[str] = Deadlines(self._deadline)

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: str) -> Session | None:
        return self._sessions.get(session_id)

    def ensure(self, session_id: str) -> Session:
        session = self._sessions.get(session_id)
        if session is None:
            session = self._sessions[session_id] = Session(session_id, Ready(self._is_ready))
        return session

    def offer(self, session: Session) -> None:
        """The session has a ready message: let the next one who asks for any session have it."""
        if session.lock is None:
            self._free.setdefault(session.id)

    def accept(
        self, session_id: str | None, now_ms: int, lock_ms: int, lost: Callable[[], None]
    ) -> SessionLock | None:
        """Lock the named session, or the next free one; None when no session is free."""
        session = self._next_free() if session_id is None else self.ensure(session_id)
        if session is None:
            return None
        if session.lock is not None:
            raise AmqpError(
                SESSION_CANNOT_BE_LOCKED,
                f"The requested session '{session.id}' cannot be accepted. It may be locked by another receiver.",
            )
        self._free.pop(session.id, None)
        session.lock = SessionLock(session, now_ms + lock_ms, lost)
        self.deadlines.add(session.lock.until_ms, session.id)
        return session.lock

    def renew(self, session_id: str, lock: SessionLock | None, now_ms: int, lock_ms: int) -> int:
        """Extend the lock that the caller holds. Returns until when."""
        held = self.held(session_id, lock)
        held.until_ms = now_ms + lock_ms
        return held.until_ms

    def held(self, session_id: str, lock: SessionLock | None) -> SessionLock:
        """The caller's lock on the session, which must be its present one."""
        if lock is None or not lock.held or lock.session.id != session_id:
            raise AmqpError(
                SESSION_LOCK_LOST,
                f"The session lock has expired on session '{session_id}'. Accept a new session lock.",
            )
        return lock

    def release(self, lock: SessionLock) -> None:
        """End the hold; the next receiver that waits for a session may have this one."""
        session = lock.session
        session.lock = None
        if session.ready:
            self.offer(session)
        self.discard_if_idle(session)

    def discard_if_idle(self, session: Session) -> None:
        """A session without messages, state and holder leaves nothing behind."""
        if not session.messages and session.lock is None and session.state is None:
            self._sessions.pop(session.id, None)
            self._free.pop(session.id, None)

    def set_state(self, session: Session, state: bytes | None, now_ms: int) -> None:
        """Set the state that a session keeps for its readers; None clears it."""
        session.state, session.state_updated_ms = state, now_ms
        self._journal.session_state(self._entity, session.id, state, now_ms)

    def listed(self, updated_after_ms: int | None) -> list[str]:
        """Ids with messages or state; with a time, those whose state was set after it."""
        if updated_after_ms is None:
            return [s.id for s in self._sessions.values() if s.messages or s.state is not None]
        return [
            s.id
            for s in self._sessions.values()
            if s.state is not None and s.state_updated_ms > updated_after_ms
        ]

    def _next_free(self) -> Session | None:
        while self._free:
            session_id = next(iter(self._free))
            session = self._sessions.get(session_id)
            if session is not None and session.lock is None and session.ready:
                return session
            del self._free[session_id]
        return None

    def _deadline(self, session_id: str) -> int | None:
        session = self._sessions.get(session_id)
        return None if session is None or session.lock is None else session.lock.until_ms
