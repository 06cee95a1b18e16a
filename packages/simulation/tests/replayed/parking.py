"""Each write of the parking lot is a step that the model of parking allows, or two that follow each other at once.

An event's number in the model is its place: a thousand for each sequence, and in between them, in their order, the
events without one. What the model leaves out (dates, reasons, the time of a claim) may change with any
step. What it counts on, such as how many events wait, is looked at after each write. One thing that it does not know is
allowed: a skip marker that the broker refuses is dropped as if it were sent.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from replayed.commits import Commit, Document, NotAllowed
from tests.models.parking import Block, Parking, Relay, Replay, State

_BLOCKS, _EVENT, _DISCARDED = ("parkedAggregate", "freedAggregate"), "parkedEvent", "discardedEvent"
_BETWEEN = 1000
"""So many events without a sequence have room behind one that has one."""

_CLOCKS_DIFFER = timedelta(seconds=30)
_NOTHING_ELSE: dict[str, Any] = {"pages_left": 0, "losses_left": 0, "discards_left": 0, "replays_left": 0}

_Parked = dict[str, Document]
_View = tuple[bool, int, int, int, frozenset[int], int, frozenset[int]]


@dataclass
class _Aggregate:
    """What the store has of an aggregate, and which numbers its events have."""

    block: Document | None = None
    parked: _Parked = field(default_factory=dict)
    """By document."""
    numbers: dict[str, int] = field(default_factory=dict)
    """By event; a skip marker has the number of the event in whose place it is, negative."""
    places: dict[str, int] = field(default_factory=dict)
    """By position."""
    settled: frozenset[int] = frozenset()

    def number(self, item: Document) -> int:
        """Of an event, or a skip marker."""
        position = str(item["position"])
        if position not in self.places:
            after = int(position[:20]) * _BETWEEN
            between = [place for place in self.places.values() if after < place < after + _BETWEEN]
            behind = 0 if position.endswith("-0") else max(between, default=after) - after + 1
            self.places[position] = after + behind
        number = -self.places[position] if item.get("notice") else self.places[position]
        self.numbers[item["eventId"]] = number
        return number


def parking_steps(
    commits: Iterable[Commit], *, ids_kept: timedelta = timedelta(days=10)
) -> Iterator[NotAllowed]:
    """The writes that the model does not allow. ``ids_kept``: how long a block remembers what was discarded."""
    aggregates: dict[str, _Aggregate] = {}
    for commit in commits:
        names = dict.fromkeys(name for change in commit.changes if (name := _aggregate_of(change)))
        for name in names:
            aggregate = aggregates.setdefault(name, _Aggregate())
            changes = [change for change in commit.changes if _aggregate_of(change) == name]
            why = _Step(aggregate, changes, commit.at, ids_kept).why_not()
            if why:
                yield NotAllowed(commit, name, why)


def _aggregate_of(change: tuple[Document | None, Document | None]) -> str | None:
    """None: it belongs to none, or is no document of the parking lot."""
    document = change[1] or change[0]
    if document is None or document.get("type") not in (*_BLOCKS, _EVENT, _DISCARDED):
        return None
    return f"{document['aggregateType']}/{document['aggregateId']}" if document["aggregateType"] else None


class _Step:
    """One write, and the aggregate before it. The aggregate is brought up to date."""

    def __init__(
        self,
        aggregate: _Aggregate,
        changes: list[tuple[Document | None, Document | None]],
        at: datetime,
        ids_kept: timedelta,
    ) -> None:
        self._aggregate = aggregate
        self._at = at
        self._ids_kept = ids_kept
        before = {**aggregate.parked}
        block = aggregate.block
        self._writes_block = False
        for was, now in changes:
            document = now or was
            assert document is not None
            if document["type"] in _BLOCKS:
                self._writes_block = True
                aggregate.block = now
            elif now is not None and now["type"] == _EVENT:
                aggregate.parked[now["id"]] = now
            else:
                aggregate.parked.pop(document["id"], None)
        for item in sorted(
            (*before.values(), *aggregate.parked.values()), key=lambda item: str(item["position"])
        ):
            aggregate.number(item)
        self._was, self._is = block, aggregate.block
        self._before = frozenset(aggregate.number(item) for item in before.values())
        self._after = frozenset(aggregate.number(item) for item in aggregate.parked.values())

    def why_not(self) -> str:
        """Empty: it is allowed."""
        if self._is is None:
            return self._why_not_gone()
        if not self._writes_block:
            return (
                ""
                if self._before == self._after
                else "events are parked or removed, and their block is not changed"
            )
        wanted, reached = self._view(self._block(self._is), self._after), [*self._reached()]
        if wanted not in [self._view(block, parked) for block, parked in reached]:
            return f"no step leads from {self._text(self._was, self._before)} to {self._text(self._is, self._after)}"
        self._aggregate.settled |= self._before - self._after
        return Parking().wrong(State(block=self._block(self._is), parked=self._after)) or ""

    def _why_not_gone(self) -> str:
        if self._after:
            return f"{set(self._after)} is parked, and there is no block"
        if self._was is not None and self._block(self._was).blocked:
            return "the block of a blocked aggregate is gone (blocked-never-expires)"
        self._aggregate.settled = frozenset()
        return ""

    def _reached(self) -> Iterator[tuple[Block, frozenset[int]]]:
        """Where the model's steps lead; nothing that it knows may have changed, too."""
        before = State(block=self._block(self._was), parked=self._before)
        yield before.block, before.parked
        for first in self._beginnings(before):
            model, state = first
            for name, after in model.steps(state):
                if after.wrong or name.startswith("relay 0 reads"):
                    continue
                yield after.block, after.parked
                if " settles " in name:
                    yield from self._goes_on(after)
                    yield from self._goes_on(after._replace(block=self._without_the_skip_marker(after)))

    def _goes_on(self, settled: State) -> Iterator[tuple[Block, frozenset[int]]]:
        """The replay goes on with what is behind that, under the same claim."""
        quiet = State(block=settled.block, parked=settled.parked)._replace(**_NOTHING_ELSE)
        yield quiet.block, quiet.parked
        for name, after in Parking().steps(quiet._replace(replays_left=1)):
            if " claims" in name:
                yield after.block, after.parked

    def _without_the_skip_marker(self, settled: State) -> Block:
        """The last event that is out was a skip marker, and the broker does not have it."""
        *out, last = sorted(self._before - self._after, key=abs) or [0]
        had = max(self._block(self._was).accepted, *map(abs, out), 0)
        return settled.block._replace(accepted=had) if last < 0 else settled.block

    def _beginnings(self, before: State) -> Iterator[tuple[Parking, State]]:
        """The model about to do what may have been done."""
        quiet = before._replace(**_NOTHING_ELSE)
        created, removed = sorted(self._after - self._before), sorted(self._before - self._after, key=abs)
        is_now = self._block(self._is)
        if created and not removed:
            yield from self._parks(quiet, tuple(created), is_now)
        elif created:
            yield Parking(), quiet._replace(discards_left=1)
        else:
            yield from self._replays(quiet, tuple(removed), is_now)

    def _parks(self, quiet: State, events: tuple[int, ...], now: Block) -> Iterator[tuple[Parking, State]]:
        sent = (now.accepted,) if now.accepted > quiet.block.accepted else ()
        reading = Relay(0, quiet.block, self._aggregate.settled, at=len(sent), sent=sum(sent))
        model = Parking(pages=((*sent, *events),))
        yield model, quiet._replace(relays=(reading._replace(refused=events[0]), None))
        yield model, quiet._replace(relays=(reading, None))

    def _replays(self, quiet: State, out: tuple[int, ...], now: Block) -> Iterator[tuple[Parking, State]]:
        waiting = sorted(self._before, key=abs)
        if not out:
            another = quiet.block._replace(claim=9 if self._is_claimed() else -1)
            yield Parking(), quiet._replace(block=another, replays_left=1)
        if [*out] != waiting[: len(out)] or quiet.block.claim < 0:
            return  # what is behind another event is not out before it; and nobody sends without a claim
        replay = Replay(out, at=len(out))
        yield Parking(), quiet._replace(replays=(replay, None))
        if now.in_the_way and len(out) < len(waiting) and waiting[len(out)] == now.in_the_way:
            refused = replay._replace(items=(*out, now.in_the_way), refused=True)
            yield Parking(), quiet._replace(replays=(refused, None))

    def _is_claimed(self) -> bool:
        """Whether a replay may still be sending, by any clock."""
        until = (self._was or {}).get("replayUntil")
        return until is not None and datetime.fromisoformat(until) > self._at + _CLOCKS_DIFFER

    def _block(self, item: Document | None) -> Block:
        if item is None:
            return Block()
        blocked = item["type"] == _BLOCKS[0]
        numbers = self._aggregate.numbers
        since = (self._at - self._ids_kept).isoformat()
        return Block(
            version=1,
            blocked=blocked,
            in_the_way=numbers.get(item["blockedBy"], _BETWEEN**3) if blocked and item["stands"] else 0,
            accepted=item["accepted"] * _BETWEEN,
            waiting=item["waiting"],
            discarded=frozenset(numbers.get(each, 0) for each, at in item["discarded"].items() if at > since),
            claim=self._claim(item),
        )

    def _claim(self, item: Document) -> int:
        """The replay that has it: 0 the one that has it afterwards, or had it last, 1 another one before; -1 none."""
        last = (self._is or {}).get("replay")
        if item["replay"] is None:
            return -1
        return 0 if last in (None, item["replay"]) else 1

    def _view(self, block: Block, parked: frozenset[int]) -> _View:
        """What is compared: a place behind a sequence counts as that sequence with the broker."""
        accepted = block.accepted // _BETWEEN
        return (
            block.blocked, block.in_the_way, accepted, block.waiting, block.discarded, block.claim, parked,
        )  # fmt: skip

    def _text(self, item: Document | None, parked: frozenset[int]) -> str:
        if item is None:
            return "no block"
        block = self._block(item)
        return (
            f"{'blocked' if block.blocked else 'free'} by {block.in_the_way}, accepted {block.accepted}, "
            f"{block.waiting} waiting of {sorted(parked)}, discarded {sorted(block.discarded)}, "
            f"{'claimed' if block.claim >= 0 else 'not claimed'}"
        )
