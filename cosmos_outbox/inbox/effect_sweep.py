"""A lost last event leaves no gap: a sweep looks at the sources that have changed since it looked last (``sweep``).

Where a source is ahead, its events are gone through as a message would; what has no effect is passed by one write,
while its documents are there. So a round comes at least twice within the life of an event, and a late one is an alarm.
"""

import logging
from dataclasses import dataclass, replace
from datetime import timedelta

from cosmos_outbox.inbox.effects import EffectInbox
from cosmos_outbox.inbox.errors import EffectAway, EffectFailed, EffectRefused, EffectRunning, NotInTurn
from cosmos_outbox.inbox.progress import Result, Seen, Side, WalkProgress
from cosmos_outbox.inbox.sweep import YOUNG, list_left
from cosmos_outbox.inbox.walk import ChangeLists, Leg, Walk

LONGEST_PAUSE = timedelta(hours=1)

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EffectSweep:
    """Goes through the sources of one subscriber with effects."""

    inbox: EffectInbox
    changes: ChangeLists
    young: timedelta = YOUNG
    """A change that is younger is on its way."""
    pause: timedelta = LONGEST_PAUSE

    async def run(self, *, seconds: float) -> None:
        """Do what is due, for so many seconds at most. Raises StoreAway."""
        now, events_live = self.inbox.clock(), self.inbox.rules.events_live
        progress = await self.changes.progress() or WalkProgress(
            now, since=now - events_live, form=self.changes.form
        )
        if progress.is_claimed(now):
            return
        # The first round looks at all that there is: it is late where it takes long.
        waits = progress.since if progress.last_ended_at else progress.began_at
        if waits is not None and now - waits > events_live / 2:
            _log.error(
                "the sweep of effects is late: it has not looked at all that was stored since %s, and events live for "
                "%s. What expires before it is looked at has no effect if its message is lost",
                waits.isoformat(),
                events_live,
            )
        if progress.side is None:
            every, ended = min(self.pause, events_live / 4), progress.last_ended_at
            if ended is not None and now - ended < every:
                return
            newest = (progress.as_of or now) - self.young
            progress = replace(progress, until=max(newest, progress.since or newest))
        since, until = progress.since, progress.until
        assert since is not None, "the first round has a beginning"
        assert until is not None, "a round that is under way has an end"
        legs = {
            Side.LEFT: Leg(list_left, self._again),
            Side.CHANGED: Leg(lambda at: self.changes.list_changed(since, until, at.position), self._look),
        }
        walk = Walk("sweep of effects", self.changes, legs, self.inbox.clock)
        if progress.side is None:
            progress = walk.begun(progress, Side.LEFT if progress.left else Side.CHANGED)
        await walk.run(progress, seconds=seconds)

    async def progress(self) -> tuple[None, WalkProgress | None]:
        """How far the rounds are, as of a sweep that has no other. Raises StoreAway."""
        return None, await self.changes.progress()

    async def _again(self, seen: Seen) -> Result:
        source = self.inbox.source
        assert source is not None, "a sweep has a source"
        return await self._look(replace(seen, sequence=await source.last(seen.key) or 0))

    async def _look(self, seen: Seen) -> Result:
        """Raises StoreAway."""
        try:
            found = await self.inbox.catch_up(seen.key, seen.sequence)
        except (EffectAway, EffectRunning, EffectFailed, EffectRefused, NotInTurn) as error:
            _log.warning("the sweep leaves the effects of %s to its next round: %s", seen.key, error)
            return Result.BLOCKED
        return Result.HEALED if found else Result.RIGHT
