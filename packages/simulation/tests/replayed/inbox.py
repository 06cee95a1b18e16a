"""Each write of an entry is one that the model of the inbox's state mode can make from the entry before it.

The aggregate's own events are the model's changes. What an entry shows is compared with what they make of the
aggregate: to the model an entry that equals that is the list of these changes, and any other is none.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache

from cosmos_outbox.inbox.entry import Entry
from outbox_simulation.invariants.history import History
from outbox_simulation.invariants.language import Language
from outbox_simulation.invariants.records import Stored
from outbox_simulation.invariants.states import EventStates, event_states
from replayed.commits import Commit, Document, NotAllowed
from tests.models.inbox_state import Content, Doing, Model, World, messages
from tests.models.inbox_state import Story as Changes

_NEVER: Content = (-1,)
"""What no changes make."""

_NO_STEP_OF_A_PROCESS = ("the ", "0 dies", "1 dies")


def inbox_steps(commits: Iterable[Commit], run: History, language: Language) -> Iterator[NotAllowed]:
    """The writes that the model does not allow. ``run``: what the store took, and who got which answer."""
    facts = event_states(run, {}, language)
    events: dict[str, dict[int, Stored]] = {}
    for stored in run.stored.values():
        events.setdefault(stored.aggregate, {})[stored.sequence] = stored
    for commit in commits:
        for was, now in commit.changes:
            document = now or was
            if document is None or document.get("type") != "entry" or document["id"] not in facts:
                continue
            name = document["id"]
            if -1 in events[name]:
                continue  # an event without a sequence: the source's states have no numbers
            why = _Written(was, now, events[name], facts[name], run, language).why_not()
            if why:
                yield NotAllowed(commit, name, why)


class _Written:
    """One write of an entry."""

    def __init__(
        self,
        was: Document | None,
        now: Document | None,
        events: Mapping[int, Stored],
        facts: EventStates,
        run: History,
        language: Language,
    ) -> None:
        self._was = was
        self._now = now
        self._events = events
        self._facts = facts
        self._run = run
        self._base: int = max(0, min(each["lastSequence"] for each in (was, now) if each) - 1)
        """What is before that is the same for both, and left out: so a long story costs no more than a short one."""
        self._language = language

    def why_not(self) -> str:
        """Empty: it is allowed."""
        before = None if self._was is None else self._entry(self._was)
        if self._now is None:
            return "" if before is None or before.deleted else "a living entry is removed"
        after = self._entry(self._now)
        if after == before:
            return ""  # what the model leaves out was written
        return self._impossible(before, after) or self._no_step(before, after)

    def _impossible(self, before: Entry[Content] | None, after: Entry[Content]) -> str:
        """What no step makes, whatever was there before."""
        if after.state == _NEVER:
            return f"at sequence {self._last(after)} it shows what its aggregate never was"
        if self._last(after) not in self._events:
            return f"it is at sequence {self._last(after)}, and there is no such event"
        if before is not None and before.last_sequence > after.last_sequence:
            return f"it goes back from sequence {self._last(before)} to {self._last(after)}"
        return ""

    def _no_step(self, before: Entry[Content] | None, after: Entry[Content]) -> str:
        if after in _made(self._letters(self._last(after)), before, gone=False):
            return ""
        # The source may be gone, tombstone and all.
        if self._facts.last[1] is None and after in _made(
            self._letters(max(self._events)), before, gone=True
        ):
            return ""
        return f"no step leads from {self._short(before)} to {self._short(after)}"

    def _last(self, entry: Entry[Content]) -> int:
        return entry.last_sequence + self._base

    def _short(self, entry: Entry[Content] | None) -> str:
        if entry is None:
            return "no entry"
        shows = "deleted" if entry.state is None else "alive"
        return f"sequence {self._last(entry)}, {shows}, {'by an event' if entry.last_event_id else 'healed'}"

    def _letters(self, last: int) -> str:
        return "".join(self._letter(number) for number in range(self._base + 1, last + 1))

    def _letter(self, sequence: int) -> str:
        """As the model names changes."""
        event = self._events.get(sequence)
        if event is None:
            return "U"
        if event.action == self._language.deleted:
            return "D"
        if event.event in self._run.skip_markers():
            return "B" if event.event in self._run.deliveries else "N"
        return "C" if event.action == self._language.created else "U"

    def _entry(self, item: Document) -> Entry[Content]:
        """The entry as the model has it."""
        sequence = item["lastSequence"]
        event = self._events.get(sequence)
        named = None if item["lastEventId"] is None else "of another event"
        if event is not None and item["lastEventId"] == event.event:
            named = next(
                (
                    sent.event.id
                    for sent in messages(self._letters(sequence))
                    if sent.event.sequence == sequence - self._base and not sent.event.is_skip
                ),
                named,
            )
        return Entry(sequence - self._base, named, self._content(item))

    def _content(self, item: Document) -> Content | None:
        if item["deleted"]:
            return None
        sequence = item["lastSequence"]
        state = self._facts.states.get(sequence)
        if state is None or any(
            item["data"].get(name) != value for name, value in self._language.entry(state).items()
        ):
            return _NEVER
        return tuple(range(1, sequence - self._base + 1))


@cache
def _made(changes: str, before: Entry[Content] | None, *, gone: bool) -> frozenset[Entry[Content]]:
    """The entries that one process can write over this one, led by any message, or by a walk."""
    model = Model(Changes(changes, odd=-1, lost=True))
    sent = messages(changes)
    made: set[Entry[Content]] = set()
    # A message before the last one leads to nothing else than a walk does.
    for message in (None, *(number for number, each in enumerate(sent) if each.change == len(changes))):
        left = tuple(1 if number == message else 0 for number in range(len(sent)))
        creates = message is not None and not gone and sent[message].event.action == "C"
        for step in ["read", "create"] if creates else ["read"]:
            world = World(len(changes), gone, (before,), left, (Doing(step, message), None))
            made |= {*_written(model, world)}
    return frozenset(made)


def _written(model: Model, first: World) -> Iterator[Entry[Content]]:
    seen, waiting = {first}, [first]
    while waiting:
        world = waiting.pop()
        if len(world.entries) > 1:
            if world.entries[-1] is not None:
                yield replace(world.entries[-1], healed=0)
            continue
        for name, after in model.successors(world):
            if not name.startswith(_NO_STEP_OF_A_PROCESS) and after not in seen:
                seen.add(after)
                waiting.append(after)
