"""The inbox's state mode as a model: one aggregate with three changes, two processes, old reads and crashes anywhere.

The decisions are those of ``cosmos_outbox.inbox.read_model`` itself. What is around them (when the entry is read, when
it is written, when the message is completed) is written down here step by step, as that module does it. Each rule can
be turned off.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import NamedTuple

from cosmos_outbox.inbox.entry import After, Entry, Found
from cosmos_outbox.inbox.message import SKIP_MARKER, Event
from cosmos_outbox.inbox.read_model import Complete, Heal, HealReason, Put, SkipReason, decide, make, mend
from cosmos_outbox.kernel.aggregate_key import AggregateKey

RULES = (
    "applied-before", "next-only", "skip-healed", "unknown-healed", "unsequenced", "made-from-source",
    "newest-entry", "newest-source", "only-newer", "gone-is-deleted", "keep-the-deleted", "deleted-is-final",
    "healed-has-no-id", "skip-no-alarm", "one-write", "at-its-version", "complete-last", "decide-again",
    "tombstones-outlive-calls", "walk-both-ways", "create-first", "create-young", "gone-is-noted",
)  # fmt: skip
"""``same-place`` raises an alarm and changes nothing, and ``source-at-least`` is for a source that was put back or
answers an old state all the same: ``tests/unit/test_inbox.py`` has both."""

Content = tuple[int, ...]
"""The state of an entry or of the source: the changes that it shows, in their order."""

KEY = AggregateKey("thing", "1")
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_TOMBSTONES = timedelta(days=10)


@dataclass(frozen=True)
class Story:
    """What happens to the aggregate, a letter for each change, and what becomes of one message of it.

    C created, U updated, D deleted, N updated and the event discarded, B updated, and both the event and its skip
    marker come, X updated by an event that the subscriber does not know, Q updated by an event without a sequence, R
    the source is put back by one change, as after a restore.
    """

    changes: str
    odd: int
    """The message, counted from 0, that is lost, or that comes late and twice."""
    lost: bool

    def __str__(self) -> str:
        return f"{self.changes}, message {self.odd} {'lost' if self.lost else 'late'}"


class Sent(NamedTuple):
    """A message, and the change after which it can be delivered."""

    event: Event
    change: int


@cache
def messages(changes: str) -> tuple[Sent, ...]:
    """The messages of a story, in the order in which they are sent."""
    found: list[Sent] = []
    for number, letter in enumerate(changes, start=1):
        sequence = None if letter == "Q" else history(changes)[number].sequence
        actions = {"N": [SKIP_MARKER], "B": ["U", SKIP_MARKER], "R": []}.get(letter, [letter])
        found += [
            Sent(Event(f"{number}{action}", KEY, action, sequence, _EPOCH, {"change": number}), number)
            for action in actions
        ]
    return tuple(found)


@cache
def history(changes: str) -> tuple[Found[Content], ...]:
    """The source after 0, 1, 2 … changes; the one after 0 is never read as such, there is no source then."""
    found = [Found[Content](0, ())]
    for number, letter in enumerate(changes, start=1):
        before = found[-1]
        if letter == "R":
            found.append(found[-2])
            continue
        state = None if letter == "D" else (*(before.state or ()), number)
        found.append(Found(before.sequence + (letter != "Q"), state))
    return tuple(found)


class Doing(NamedTuple):
    """What a process is about to do for one message (None: for a walk), and what it goes by."""

    step: str
    message: int | None
    read: int = 0
    """The version of the entry that was read."""
    heal: Heal | None = None
    put: Entry[Content] | None = None
    again: bool = False
    """The entry was read consistently."""


class World(NamedTuple):
    """A state of the model."""

    committed: int
    gone: bool
    """The source's tombstone has expired."""
    entries: tuple[Entry[Content] | None, ...]
    """Every version of the entry so far; the last one is the newest."""
    left: tuple[int, ...]
    """How often each message will still come."""
    processes: tuple[Doing | None, ...]
    alarm: bool = False

    @property
    def newest(self) -> int:
        return len(self.entries) - 1


def first(story: Story) -> World:
    left = tuple(
        (0 if story.lost else 2) if number == story.odd else 1
        for number in range(len(messages(story.changes)))
    )
    return World(0, False, (None,), left, (None, None))


def project(state: Content, event: Event) -> After[Content] | None:
    if event.action == "X":
        return None
    return After(None if event.action == "D" else (*state, int(event.data["change"])))


def _made(event: Event, now: datetime) -> Put[Content] | None:
    """Only the event of the creation holds the whole state."""
    state = (int(event.data["change"]),) if event.action == "C" else None
    return make(event, lambda _: state, now, _TOMBSTONES)


@dataclass(frozen=True)
class Model:
    """The steps of a story; ``off`` is the rule that is not kept."""

    story: Story
    off: str = ""
    forgets: bool = False
    """The source shows nothing of what was deleted, as another team's API."""

    def successors(self, world: World) -> Iterator[tuple[str, World]]:
        yield from self._surroundings(world)
        for number, doing in enumerate(world.processes):
            if doing is None:
                steps = self._starts(world)
            else:
                steps = getattr(self, f"_{doing.step}")(world, doing)
                yield f"{number} dies", self._with(world, number, None)
            for what, after, then in steps:
                yield f"{number} {what}", self._with(after, number, then)

    @staticmethod
    def _with(world: World, number: int, doing: Doing | None) -> World:
        processes = [*world.processes]
        processes[number] = doing
        return world._replace(processes=tuple(sorted(processes, key=hash)))

    def _surroundings(self, world: World) -> Iterator[tuple[str, World]]:
        changes = history(self.story.changes)
        if world.committed < len(changes) - 1:
            yield "the source changes", world._replace(committed=world.committed + 1)
        entry, at_any_time = world.entries[-1], self.off == "tombstones-outlive-calls"
        if not at_any_time and any(world.processes):
            return
        if changes[world.committed].state is None and not world.gone:
            yield "the source's tombstone expires", world._replace(gone=True)
        expires = at_any_time or (world.gone and self.at_rest(world))
        if expires and entry is not None and entry.deleted and None not in world.entries[1:]:
            yield "the entry's tombstone expires", world._replace(entries=(*world.entries, None))

    def at_rest(self, world: World) -> bool:
        """No message can come any more, and no process is at work."""
        all_changed = world.committed == len(self.story.changes)
        return all_changed and not any(world.left) and not any(world.processes)

    def _starts(self, world: World) -> Iterator[tuple[str, World, Doing | None]]:
        for number, sent in enumerate(messages(self.story.changes)):
            in_turn = number == self.story.odd or not any(
                left for each, left in enumerate(world.left[:number]) if each != self.story.odd
            )
            if world.left[number] and sent.change <= world.committed and in_turn:
                yield f"receives {sent.event.id}", world, Doing("read", number)
                if self._made(world, sent.event) is not None:
                    yield f"receives {sent.event.id}, young", world, Doing("create", number)
        entry = world.entries[-1]
        if entry is not None or (world.committed and not world.gone and self.off != "walk-both-ways"):
            yield "begins to walk", world, Doing("read", None)

    def _made(self, world: World, event: Event) -> Put[Content] | None:
        """What an event makes unread. As long as it is young, no tombstone of its aggregate has expired."""
        young = not world.gone or self.off == "create-young"
        return _made(event, _EPOCH if young else _EPOCH + _TOMBSTONES)

    def _create(self, world: World, doing: Doing) -> Iterator[tuple[str, World, Doing | None]]:
        """A write that only creates: its refusal shows an entry."""
        assert doing.message is not None
        made = _made(messages(self.story.changes)[doing.message].event, _EPOCH)
        assert made is not None, "decided when the message came"
        if world.entries[-1] is None or self.off == "create-first":
            written = world._replace(entries=(*world.entries, made.entry))
            yield "creates", written, doing._replace(step="complete")
        else:
            yield "is refused", world, doing._replace(step="read")

    def _read(self, world: World, doing: Doing) -> Iterator[tuple[str, World, Doing | None]]:
        for version in range(len(world.entries)):
            yield self._decided(world, doing, version)

    def _again(self, world: World, doing: Doing) -> Iterator[tuple[str, World, Doing | None]]:
        """With a consistent read, since the entry was not as it was read."""
        yield self._decided(world, doing._replace(again=True), world.newest)

    def _decided(self, world: World, doing: Doing, version: int) -> tuple[str, World, Doing | None]:
        entry = world.entries[version]
        if doing.message is None:
            decision: Complete | Put[Content] | Heal = Heal(HealReason.WALK, None)
        else:
            decision = self._decide(entry, messages(self.story.changes)[doing.message].event)
        what = f"reads version {version} of the entry"
        applied = decision == Complete(SkipReason.APPLIED_BEFORE)
        if not (isinstance(decision, Put) or applied or doing.again) and self.off != "newest-entry":
            return what, world, Doing("again", doing.message)
        if isinstance(decision, Heal):
            return what, world, doing._replace(step="source", read=version, heal=decision)
        return what, *self._concluded(world, doing._replace(read=version), decision)

    def _concluded(
        self, world: World, doing: Doing, decision: Complete | Put[Content]
    ) -> tuple[World, Doing | None]:
        if isinstance(decision, Complete):
            alarm = world.alarm or decision.why is SkipReason.CONFLICT
            return world._replace(alarm=alarm), Doing("complete", doing.message)
        entry = replace(decision.entry, healed=0)
        if self.off == "complete-last":
            world = self._completed(world, doing)
            doing = doing._replace(message=None)
        return world, doing._replace(step="put", heal=None, put=entry, again=False)

    def _source(self, world: World, doing: Doing) -> Iterator[tuple[str, World, Doing | None]]:
        """With a consistent read."""
        assert doing.heal is not None
        shown = [None if world.gone or not world.committed else history(self.story.changes)[world.committed]]
        if self.off == "newest-source":
            shown = [None, *history(self.story.changes)[1 : world.committed + 1]]
        for found in shown:
            what = "finds no source" if found is None else f"reads the source at {found.sequence}"
            result = self._mend(world.entries[doing.read], doing.heal, found)
            if result is None:
                yield what, world, None  # the message comes again
            else:
                yield what, *self._concluded(world, doing, result)

    def _put(self, world: World, doing: Doing) -> Iterator[tuple[str, World, Doing | None]]:
        entry, before = doing.put, world.entries[doing.read]
        assert entry is not None
        newest = world.entries[-1]
        same = doing.read == world.newest or (before is None and newest is None)
        if not same and self.off != "at-its-version":
            if self.off == "decide-again":
                yield "is refused", world, Doing("complete", doing.message)
            else:
                yield "is refused", world, Doing("again", doing.message)
            return
        if self.off == "one-write" and before is not None:
            half = replace(before, last_sequence=entry.last_sequence, last_event_id=entry.last_event_id)
            written = world._replace(entries=(*world.entries, half))
            yield "writes the sequence", written, doing._replace(step="put_rest", read=len(world.entries))
            return
        written = world._replace(entries=(*world.entries, entry))
        yield "writes", written, Doing("complete", doing.message)

    def _put_rest(self, world: World, doing: Doing) -> Iterator[tuple[str, World, Doing | None]]:
        if doing.read == world.newest:
            written = world._replace(entries=(*world.entries, doing.put))
            yield "writes the rest", written, Doing("complete", doing.message)

    def _complete(self, world: World, doing: Doing) -> Iterator[tuple[str, World, Doing | None]]:
        yield "completes", self._completed(world, doing), None

    @staticmethod
    def _completed(world: World, doing: Doing) -> World:
        if doing.message is None:
            return world
        left = [*world.left]
        left[doing.message] = max(0, left[doing.message] - 1)
        return world._replace(left=tuple(left))

    def _decide(self, entry: Entry[Content] | None, event: Event) -> Complete | Put[Content] | Heal:
        """The decision of the inbox, or a wrong one in its place."""
        decision = decide(entry, event, project)
        if self.off == "deleted-is-final" and decision == Complete(SkipReason.DELETED):
            assert entry is not None
            return decide(replace(entry, state=()), event, project)
        applied = None if event.sequence is None else project((entry and entry.state) or (), event)
        forced = applied and Put(Entry(event.sequence or 0, event.id, applied.state))
        match self.off, decision:
            case (
                ("applied-before", Complete(SkipReason.APPLIED_BEFORE))
                | ("next-only", Heal(HealReason.GAP))
                | ("made-from-source", Heal(HealReason.NEW))
            ) if forced:
                return forced
            case ("skip-healed", Heal(HealReason.SKIP_MARKER)) | ("unknown-healed", Heal(HealReason.UNKNOWN)):
                return Put(Entry(event.sequence or 0, event.id, entry.state if entry else None))
            case "unsequenced", Heal(HealReason.UNSEQUENCED):
                return Complete(SkipReason.APPLIED_BEFORE)
            case "skip-no-alarm", Complete(SkipReason.APPLIED_BEFORE):
                return decide(entry, replace(event, action="U"), project)
        return decision

    def _mend(
        self, entry: Entry[Content] | None, heal: Heal, found: Found[Content] | None
    ) -> Complete | Put[Content] | None:
        """What healing concludes, or something wrong in its place."""
        noted = self.forgets and self.off != "gone-is-noted"
        result = mend(entry, heal, self._shown(found), notes_gone=noted)
        match self.off, result:
            case "deleted-is-final", Complete(SkipReason.DELETED):
                assert entry is not None
                return mend(replace(entry, state=()), heal, found)
            case "only-newer", Complete(SkipReason.NOT_NEWER) if found is not None:
                return Put(Entry(found.sequence, None, found.state))
            case "gone-is-deleted", Put() if found is None:
                return Complete(SkipReason.GONE)
            case "keep-the-deleted", Put() if entry is None and result.entry.deleted:
                return Complete(SkipReason.DELETED)
            case "healed-has-no-id", Put() if entry is not None:
                return Put(replace(result.entry, last_event_id=entry.last_event_id))
        return result

    def broken(self, world: World) -> str | None:
        """What does not hold in this state."""
        if world.alarm:
            return "an alarm, although no two events have one sequence"
        return self._broken_entry(world) or (self._broken_at_rest(world) if self.at_rest(world) else None)

    def _broken_entry(self, world: World) -> str | None:
        entry = world.entries[-1]
        if entry is None or entry.deleted:
            return None
        sources = history(self.story.changes)[: world.committed + 1]
        shown = entry.last_sequence, entry.state
        # A change without a sequence leaves no gap: it is missing until its message comes or a later change is healed.
        if "Q" not in self.story.changes and shown not in [(each.sequence, each.state) for each in sources]:
            return f"the entry is what the aggregate never was: {entry.last_sequence}, {entry.state}"
        before = [each for each in world.entries[:-1] if each is not None]
        if before and before[-1].last_sequence > entry.last_sequence:
            return "the entry went back"
        if any(each.deleted for each in before):
            return "a deleted entry came back"
        return None

    def _broken_at_rest(self, world: World) -> str | None:
        if "R" in self.story.changes:
            return None  # what was put back is for an operator
        source = history(self.story.changes)[-1]
        entry = self._walked(world) if self.story.lost else world.entries[-1]
        state = None if entry is None else entry.state
        if state != source.state:
            return f"at rest the entry shows {state}, and the source {source.state}"
        if entry is not None and not entry.deleted and entry.last_sequence != source.sequence:
            return f"at rest the entry is at {entry.last_sequence}, and the source at {source.sequence}"
        return None

    def _walked(self, world: World) -> Entry[Content] | None:
        """The entry after one more walk, which meets nobody."""
        source, entry = history(self.story.changes)[-1], world.entries[-1]
        if entry is None and (world.gone or self.off == "walk-both-ways"):
            return None
        shown = None if world.gone else self._shown(source)
        result = mend(entry, Heal(HealReason.WALK, None), shown, notes_gone=self.forgets)
        return result.entry if isinstance(result, Put) else entry

    def _shown(self, found: Found[Content] | None) -> Found[Content] | None:
        return None if self.forgets and found is not None and found.state is None else found
