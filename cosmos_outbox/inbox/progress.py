"""How far a walk over entries and sources has come is one document, so that any process can go on from there.

A round that looks at what was changed within a time remembers what it could not settle, so that the next round need not
look at that time again. ``left`` holds a bounded number by name; for the others the time stands still (``stands_at``).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from cosmos_outbox.kernel.aggregate_key import AggregateKey

MOST_LEFT = 200
"""So many unsettled aggregates are remembered by name. For more, the time up to which was compared stands still."""


class Side(StrEnum):
    """What a walk goes over."""

    ENTRIES = "entries"
    SOURCES = "sources"
    LEFT = "left"
    """What an earlier round could not settle."""
    CHANGED = "changed"
    """The sources that were changed since an earlier round."""


class Result(StrEnum):
    """What a walk found of one aggregate, or did about it."""

    RIGHT = "right"
    YOUNG = "young"
    HEALED = "healed"
    REWRITTEN = "rewritten"
    """It was right, in another form."""
    BLOCKED = "blocked"
    AHEAD = "ahead"
    FAILED = "failed"
    AWAY = "away"
    """The store did not answer for it. It counts as failed."""

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to be looked at, unless the source changes again."""
        return self not in (Result.BLOCKED, Result.FAILED, Result.AWAY)


@dataclass(frozen=True)
class Seen:
    """An entry or a source, as a list shows it."""

    key: AggregateKey
    sequence: int
    deleted: bool
    changed_at: datetime | None
    """None: not known."""
    blocked_since: datetime | None = None
    healed: int = 0
    other_form: bool = False
    """An entry's: it was made in another form."""


@dataclass(frozen=True)
class SeenPage:
    """A page of a list, and where it goes on; None: the list ends here."""

    items: Sequence[Seen]
    position: str | None


@dataclass(frozen=True)
class Counts:
    """What a round found, over both sides."""

    entries: int = 0
    sources: int = 0
    healed: int = 0
    blocked: int = 0
    ahead: int = 0
    failed: int = 0
    rewritten: int = 0
    """Entries that were right, and were written again since their form was another one."""
    healed_ever: int = 0
    """How often the entries that are there now were put right, by events or by sweeps."""

    def plus(self, side: Side, items: Sequence[Seen], results: Sequence[Result]) -> "Counts":
        """With a page more."""
        of_entries = side is Side.ENTRIES
        return Counts(
            entries=self.entries + (len(items) if of_entries else 0),
            sources=self.sources + (0 if of_entries else len(items)),
            healed=self.healed + results.count(Result.HEALED),
            blocked=self.blocked + results.count(Result.BLOCKED),
            ahead=self.ahead + results.count(Result.AHEAD),
            failed=self.failed + results.count(Result.FAILED) + results.count(Result.AWAY),
            rewritten=self.rewritten + results.count(Result.REWRITTEN),
            healed_ever=self.healed_ever + sum(each.healed for each in items),
        )


@dataclass(frozen=True)
class WalkProgress:
    """How far the present round has come, and what the last whole round found."""

    began_at: datetime
    side: Side | None = None
    """None: no round is under way."""
    position: str | None = None
    counts: Counts = field(default_factory=Counts)
    last_counts: Counts | None = None
    last_ended_at: datetime | None = None
    version: str | None = None
    form: int = 0
    """Of the entries that the round compares with."""
    moved_at: datetime | None = None
    """When the page in hand became the one in hand."""
    claimed_until: datetime | None = None
    """Until then somebody is at it; None: nobody, or somebody whose time has no end."""
    since: datetime | None = None
    """Sources that were changed before then need no look: those in ``left`` do. By the store's clock."""
    until: datetime | None = None
    """Up to which changes the round looks; None: at all that there is."""
    left: Sequence[AggregateKey] = ()
    """What this round and those before it could not settle."""
    stands_at: datetime | None = None
    """The oldest change among what ``left`` has no room for: there the next round begins."""
    as_of: datetime | None = None
    """The time of this reading, by the store's clock. This is not saved."""
    ended: bool = False
    """Whether the page before was the last of its round. This is not saved."""

    def after(
        self, page: SeenPage, results: Sequence[Result], now: datetime, next_side: Side | None
    ) -> "WalkProgress":
        """The progress after a page; ``next_side`` None: the last one of the round, if it is the last of its side."""
        assert self.side is not None, "a page is of a side"
        done = self if self.until is None else self._with_left(page.items, results)
        counts = self.counts.plus(self.side, page.items, results)
        done = replace(done, position=page.position, counts=counts, moved_at=now)
        if page.position is not None:
            return done
        if next_side is not None:
            return replace(done, side=next_side)
        if done.until is not None:
            done = replace(done, since=done.stands_at or done.until, until=None, stands_at=None)
        return replace(
            done,
            side=None,
            counts=Counts(),
            last_counts=counts,
            last_ended_at=now,
            moved_at=None,
            claimed_until=None,
            ended=True,
        )

    def _with_left(self, items: Sequence[Seen], results: Sequence[Result]) -> "WalkProgress":
        unsettled = [seen for seen, result in zip(items, results, strict=True) if not result.is_settled]
        before = [] if self.side is Side.LEFT else [*self.left]
        new = [seen for seen in unsettled if seen.key not in before]
        room = max(0, MOST_LEFT - len(before))
        times = [*(seen.changed_at for seen in new[room:]), self.stands_at]
        stands = [time for time in times if time is not None]
        return replace(
            self,
            left=(*before, *(seen.key for seen in new[:room])),
            stands_at=min(stands, default=None),
        )

    def begun(self, now: datetime, first: Side, form: int) -> "WalkProgress":
        """A round that begins now, after what was before."""
        return replace(
            self,
            began_at=now,
            side=first,
            position=None,
            counts=Counts(),
            form=form,
            moved_at=now,
            ended=False,
        )

    def is_claimed(self, now: datetime) -> bool:
        """Whether somebody is at it."""
        return self.claimed_until is not None and now < self.claimed_until
