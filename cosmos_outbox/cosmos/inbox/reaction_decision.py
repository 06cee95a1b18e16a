"""Decides the outcome of a message at one target; the outcome is written with its record, or not at all.

A read may be old unless ``consistent``: a write names the version that was read, and an outcome without a change is
accepted only from a consistent read.

=======================  ============================================================================================
``name_of_the_reaction`` The record's id is made of names in the code, and of the event's own id (``original_id``), its
                         source, the reaction (``reaction_in_id``) and the target (``target_in_id``); not of the
                         transport.
``record_says_which``    A record holds its message's outcome; another message with this id is logged as an error.
``through_the_record``   Only "refused" can change, at the record's version: to applied or discarded, on request.
``newest_for_a_no``      NOTHING, REFUSED and a deleted target are accepted only from a consistent read.
``refusal_recorded``     An outcome without a change has a record too.
``cursor``               NEWEST and EACH compare with the last sequence of the source at this target.
``next_only``            EACH: only the next message is applied; an early one waits.
``every_outcome_moves``  The cursor passes a message with whatever outcome.
``discard_in_turn``      EACH: only the next message is discarded.
=======================  ============================================================================================
"""

import hashlib
import json
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Generic, TypeVar

from cosmos_outbox.inbox.errors import OutOfOrder, ReactionRefused
from cosmos_outbox.inbox.message import Event
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.kernel.loops import own_failures
from cosmos_outbox.outbox.aggregate import Aggregate


class ReactionOutcome(StrEnum):
    """The outcome of a message at one target."""

    APPLIED = "applied"
    NOTHING = "nothing"
    """The target is already as the message wants it, or a newer message has passed it."""
    REFUSED = "refused"
    DISCARDED = "discarded"
    """Discarded by an operator, or because of its age."""


class InOrder(StrEnum):
    """The order of the source's messages that a reaction needs."""

    ANY = "any"
    NEWEST = "newest"
    EACH = "each"


T = TypeVar("T", bound=Aggregate[Any])
T_co = TypeVar("T_co", bound=Aggregate[Any], covariant=True)

React = Callable[[T | None, Event], T | None]
"""Changes the target by the message, or creates and returns one if there is none; raises ReactionRefused. It may be
called again for the same message with the target as it is then, and does no I/O."""


@dataclass(frozen=True)
class ReactionRecord:
    """The stored outcome of a message at one target. It holds no personal data."""

    outcome: ReactionOutcome
    fingerprint: str
    """The fingerprint of the message."""
    sequence: int
    """The target's last sequence after it; 0: there was no target."""
    reason: str = ""
    """The reason of a refusal or a discard."""
    version: str | None = None
    """None: not stored yet."""

    def is_of(self, event: Event) -> bool:
        """Whether it belongs to this message, and not to another one with the same id."""
        return self.fingerprint == fingerprint(event)

    def is_refusal_of(self, event: Event) -> bool:
        """Whether an operator can change it (``through_the_record``)."""
        return self.outcome is ReactionOutcome.REFUSED and self.is_of(event)


@dataclass(frozen=True)
class Cursor:
    """The last sequence of one source aggregate that was processed at one target."""

    last: int = 0
    version: str | None = None
    """None: not stored yet."""


@dataclass(frozen=True)
class SeenTarget(Generic[T_co]):
    """A target as it was read."""

    target: T_co | None = None
    """None: this read found no living one."""
    version: str | None = None
    deleted: bool = False
    cursor: Cursor = Cursor()


@dataclass(frozen=True)
class TargetRef:
    """The ids of the documents for one message's outcome at one target."""

    target: str
    """The id of the aggregate."""
    partition_key: str
    record: str
    cursor: str
    """Shared by all messages of the source aggregate; empty: the reaction takes them in any order."""

    @classmethod
    def of(  # noqa: PLR0913, PLR0917 - the parts of its ids
        cls, reaction: str, kind: str, target: str, partition_key: str, event: Event, order: InOrder
    ) -> "TargetRef":
        """``kind``: the target's type."""
        source = event.aggregate
        cursor = _digest("cursor", reaction, event.source, *source, kind, target)
        record = _digest("reaction", reaction, event.source, event.id, kind, target)
        return cls(target, partition_key, record, "" if order is InOrder.ANY else cursor)


@dataclass(frozen=True)
class ToWrite(Generic[T_co]):
    """One transaction: the record first, the cursor, and the change at the version that was read."""

    record: ReactionRecord
    over: str | None = None
    """The version of the record that this one replaces; None: there is none."""
    cursor: int | None = None
    """The cursor's new value; None: there is no cursor."""
    changed: T_co | None = None
    """The target with changes to store; None: it does not change."""


@dataclass(frozen=True)
class _No:
    outcome: ReactionOutcome
    reason: str


def fingerprint(event: Event) -> str:
    """Returns a digest that is the same for each copy of a message and differs for another with the same id."""
    return _digest(event.action, json.dumps(event.data, sort_keys=True, default=str))


def decide(  # noqa: PLR0913 - the declaration, and the reads
    seen: SeenTarget[T],
    event: Event,
    react: React[T],
    order: InOrder,
    refused: ReactionRecord | None = None,
    *,
    consistent: bool,
) -> ToWrite[T] | None:
    """Decides what is to be written; None: the read proves too little, read again, consistently.

    ``refused``: the record that an operator asks to change.

    Raises:
        OutOfOrder: order EACH, and it is not the next one; or a newer one has passed the refused one.
        ReactionRefused: a refused message was retried on request, and is refused again.
        Exception: any that the reaction raises on a consistently read target.
    """
    try:
        with own_failures():
            found = _found(seen, event, react, order, asked=refused is not None)
    except Exception:
        if consistent:
            raise
        return None
    over = None if refused is None else refused.version
    moved = _moved(seen, event, order)
    if not isinstance(found, _No):
        changed, sequence = found
        return ToWrite(
            ReactionRecord(ReactionOutcome.APPLIED, fingerprint(event), sequence), over, moved, changed
        )
    if not consistent:
        return None  # newest_for_a_no
    if found.outcome is ReactionOutcome.REFUSED and refused is not None:
        raise ReactionRefused(found.reason)
    return ToWrite(_a_no(seen, event, found), over, moved)  # refusal_recorded


def discard(
    seen: SeenTarget[T], event: Event, reason: str, order: InOrder, refused: ReactionRecord | None
) -> ToWrite[T]:
    """Returns what to write so that the message is never applied. Raises OutOfOrder (``discard_in_turn``)."""
    if refused is None:
        _in_turn(seen, event, order)
    over = None if refused is None else refused.version
    return ToWrite(
        _a_no(seen, event, _No(ReactionOutcome.DISCARDED, reason)), over, _moved(seen, event, order)
    )  # discard_marks


def _found(
    seen: SeenTarget[T], event: Event, react: React[T], order: InOrder, *, asked: bool
) -> _No | tuple[T, int]:
    """Returns why there is no change, or the target with changes to store and its last sequence after them."""
    if asked and order is not InOrder.ANY and seen.cursor.last != event.sequence:
        raise OutOfOrder("a newer message of the same source has passed this one: discard it")
    if (no := _by_its_place(seen, event, order, asked=asked)) is not None:
        return no
    try:
        after = react(seen.target, event)
    except ReactionRefused as refusal:
        return _No(ReactionOutcome.REFUSED, str(refusal))
    aggregate = seen.target if after is None else after
    changes = None if aggregate is None else aggregate.changes()
    if aggregate is None or changes is None:
        return _No(ReactionOutcome.NOTHING, "")
    return aggregate, changes.state.last_sequence


def _by_its_place(seen: SeenTarget[T], event: Event, order: InOrder, *, asked: bool) -> _No | None:
    """Returns an outcome that needs no call of the reaction; None: call it. Raises OutOfOrder."""
    if seen.deleted:
        return _No(ReactionOutcome.REFUSED, "the target is deleted")
    if order is not InOrder.ANY and event.sequence is None:
        return _No(ReactionOutcome.REFUSED, "the event has no sequence, and the reaction needs an order")
    if order is not InOrder.ANY and not asked and (event.sequence or 0) <= seen.cursor.last:
        return _No(ReactionOutcome.NOTHING, "a newer message has passed it")
    _in_turn(seen, event, order)
    return _No(ReactionOutcome.NOTHING, "a skip marker") if event.is_skip else None


def _in_turn(seen: SeenTarget[T], event: Event, order: InOrder) -> None:
    """Rule ``next_only``: the message of a missing sequence may be among the dead letters."""
    if order is InOrder.EACH and event.sequence is not None and event.sequence > seen.cursor.last + 1:
        raise OutOfOrder(
            f"event {event.sequence} of {event.aggregate} waits for event {seen.cursor.last + 1}: each in order"
        )


def _moved(seen: SeenTarget[T], event: Event, order: InOrder) -> int | None:
    """Returns the cursor's new value (``every_outcome_moves``)."""
    if order is InOrder.ANY:
        return None
    return max(seen.cursor.last, event.sequence or 0)


def _a_no(seen: SeenTarget[T], event: Event, no: _No) -> ReactionRecord:
    sequence = 0 if seen.target is None else seen.target.state.last_sequence
    return ReactionRecord(no.outcome, fingerprint(event), sequence, no.reason)


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
